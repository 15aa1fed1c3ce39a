"""Self-supervised digits: two views, online net + predictor against a slow target copy; judged with a linear probe."""
import copy
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)


def augment(x):
    n = len(x)
    a = (torch.rand(n) - 0.5) * 0.6
    s = 1 + (torch.rand(n) - 0.5) * 0.3
    t = (torch.rand(n, 2) - 0.5) * 0.4
    mat = torch.stack([torch.stack([s * a.cos(), -s * a.sin(), t[:, 0]], 1),
                       torch.stack([s * a.sin(), s * a.cos(), t[:, 1]], 1)], 1)
    out = F.grid_sample(x, F.affine_grid(mat, x.shape, align_corners=False), align_corners=False)
    return out * (0.7 + 0.6 * torch.rand(n, 1, 1, 1)) + 0.05 * torch.randn_like(x)


class Trunk(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.projector = nn.Sequential(nn.Linear(512, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, dim))

    def features(self, x):
        return self.conv(x).flatten(1)

    def forward(self, x):
        return self.projector(self.features(x))


class BYOL(nn.Module):
    def __init__(self, dim=64, tau=0.97):
        super().__init__()
        self.online = Trunk(dim)
        self.predictor = nn.Sequential(nn.Linear(dim, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, dim))
        self.target = copy.deepcopy(self.online)
        for p in self.target.parameters():
            p.requires_grad_(False)
        self.tau = tau

    @torch.no_grad()
    def update_target(self):
        for p, q in zip(self.online.parameters(), self.target.parameters()):
            q.lerp_(p, 1 - self.tau)

    def forward(self, a, b):
        pa, pb = self.predictor(self.online(a)), self.predictor(self.online(b))
        with torch.no_grad():
            ta, tb = self.target(a), self.target(b)
        return 2 - (F.cosine_similarity(pa, tb).mean() + F.cosine_similarity(pb, ta).mean())


digits = load_digits()
images = torch.tensor(digits.images / 16.0, dtype=torch.float32)[:, None]
labels = digits.target
perm = np.random.RandomState(SEED).permutation(len(images))
tr, te = perm[:1400], perm[1400:]

byol = BYOL()
model = torch.compile(byol, backend=COMPILE) if COMPILE else byol
opt = torch.optim.SGD([p for p in byol.parameters() if p.requires_grad], lr=0.15, momentum=0.9, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 220)

losses = []
for step in range(220):
    x = images[tr[np.random.randint(0, len(tr), 96)]]
    loss = model(augment(x), augment(x))
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    byol.update_target()
    losses.append(loss.item())
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")

byol.eval()
with torch.no_grad():
    feats = byol.online.features(images).numpy()
    spread = F.normalize(byol.online(images), dim=1).std(0).mean().item()
probe = LogisticRegression(max_iter=200, C=0.1).fit(feats[tr[:500]], labels[tr[:500]])
acc = probe.score(feats[te], labels[te])
print(f"projection spread {spread:.4f} (1/sqrt(d) = {64 ** -0.5:.4f})")
print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-20:])), "metric_name": "probe_accuracy",
                  "metric": float(acc), "ok": bool(acc > 0.9 and spread > 0.04)}))
