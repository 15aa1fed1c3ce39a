"""Two-stage transfer on digits: pretrain on 0-4, fine-tune on 5-9 with gradual unfreezing (head first, then deeper)."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)
data = load_digits()
X = torch.tensor(data.images / 16.0, dtype=torch.float32)[:, None]
Y = torch.tensor(data.target)


class DigitNet(nn.Module):
    def __init__(self, n=5):
        super().__init__()
        self.block1 = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU())
        self.block2 = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.neck = nn.Sequential(nn.Flatten(), nn.Linear(32 * 16, 48), nn.ReLU())
        self.head = nn.Linear(48, n)

    def forward(self, x):
        return self.head(self.neck(self.block2(self.block1(x))))


def maybe_compile(m):
    return torch.compile(m, backend=BACKEND) if BACKEND else m


def fit(net, opt, x, y, steps, losses):
    for _ in range(steps):
        idx = torch.randint(len(x), (32,))
        loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.item())


src, tgt = Y < 5, Y >= 5
model = DigitNet()
losses = []
fit(maybe_compile(model), torch.optim.Adam(model.parameters(), lr=2e-3), X[src], Y[src], 80, losses)
print("source loss", round(float(np.mean(losses[-10:])), 4))

tx, ty = X[tgt], Y[tgt] - 5
perm = torch.randperm(len(tx))
tr, te = perm[:500], perm[500:]
model.head = nn.Linear(48, 5)
for p in model.parameters():
    p.requires_grad_(False)
stages = [("head", model.head, 1e-2), ("neck", model.neck, 1e-3), ("block2", model.block2, 3e-4), ("block1", model.block1, 1e-4)]
groups = []
for name, module, lr in stages:
    for p in module.parameters():
        p.requires_grad_(True)
    groups.append({"params": list(module.parameters()), "lr": lr})
    opt = torch.optim.Adam([dict(g) for g in groups])
    fit(maybe_compile(model), opt, tx[tr], ty[tr], 45, losses)
    n = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"unfroze {name}: {n} trainable, loss {np.mean(losses[-10:]):.4f}")
model.eval()
with torch.no_grad():
    acc = (model(tx[te]).argmax(1) == ty[te]).float().mean().item()
print(json.dumps({"loss_first": losses[0], "loss_last": losses[-1], "metric_name": "target_accuracy", "metric": acc, "ok": acc > 0.93}))
