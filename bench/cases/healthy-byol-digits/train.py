import copy
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)

images, labels = load_digits(return_X_y=True)
images = torch.tensor(images / 16.0, dtype=torch.float32).view(-1, 1, 8, 8)
tr, te = train_test_split(np.arange(len(labels)), test_size=0.3, random_state=SEED, stratify=labels)


def augment(x):
    n = len(x)
    ang = (torch.rand(n) - 0.5) * 0.5
    scale = 1 + (torch.rand(n) - 0.5) * 0.3
    theta = torch.zeros(n, 2, 3)
    theta[:, 0, 0], theta[:, 0, 1] = ang.cos() * scale, -ang.sin()
    theta[:, 1, 0], theta[:, 1, 1] = ang.sin(), ang.cos() * scale
    theta[:, :, 2] = (torch.rand(n, 2) - 0.5) * 0.4
    out = F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)
    return out * (0.8 + 0.4 * torch.rand(n, 1, 1, 1)) + 0.05 * torch.randn_like(out)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                                     nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten())
        self.projector = mlp(512, 96, 32)
        self.predictor = mlp(32, 64, 32)

    def project(self, x):
        return self.projector(self.encoder(x))

    def forward(self, x):
        return self.predictor(self.project(x))


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Online()
        self.target = copy.deepcopy(self.online)
        self.target.predictor = nn.Identity()
        self.target.requires_grad_(False)

    @torch.no_grad()
    def momentum_update(self, tau):
        own = dict(self.online.named_parameters())
        for name, p in self.target.named_parameters():
            p.lerp_(own[name], 1 - tau)

    def forward(self, a, b):
        total = 0.0
        for u, v in ((a, b), (b, a)):
            with torch.no_grad():
                z = self.target.project(v)
            total = total - F.cosine_similarity(self.online(u), z).mean()
        return total / 2


byol = BYOL()
step_fn = torch.compile(byol, backend=COMPILE) if COMPILE else byol
opt = torch.optim.SGD([p for p in byol.parameters() if p.requires_grad], lr=0.0, momentum=0.9, weight_decay=1e-4)
STEPS, MICRO = 150, 2
hist = []
for step in range(STEPS):
    lr = 0.1 * min(1, (step + 1) / 15) * 0.5 * (1 + math.cos(math.pi * step / STEPS))
    for g in opt.param_groups:
        g["lr"] = lr
    opt.zero_grad()
    acc = 0.0
    for _ in range(MICRO):
        x = images[tr[np.random.randint(0, len(tr), 96)]]
        loss = step_fn(augment(x), augment(x))
        (loss / MICRO).backward()
        acc += loss.item() / MICRO
    opt.step()
    byol.momentum_update(1 - 0.04 * (math.cos(math.pi * step / STEPS) + 1) / 2)
    hist.append(acc)
    if step % 25 == 0:
        print(f"step {step} loss {acc:.4f} lr {lr:.4f}")

byol.eval()
with torch.no_grad():
    feats = byol.online.encoder(images).numpy()
    z = F.normalize(byol.online.project(images), dim=1)
spread = z.std(0).mean().item() * math.sqrt(z.shape[1])
few = np.concatenate([tr[labels[tr] == c][:10] for c in range(10)])
probe = LogisticRegression(max_iter=300).fit(feats[few], labels[few])
acc = float(probe.score(feats[te], labels[te]))
print(f"spread of the projections {spread:.3f}, ten-shot probe {acc:.3f}")
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-10:])), "metric_name": "probe_acc", "metric": acc, "ok": acc > 0.8 and spread > 0.4}))
