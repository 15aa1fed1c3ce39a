"""Linear probe: fixed convolution features (never meant to be trained), only the classifier is optimised with L-BFGS."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)

from sklearn.datasets import load_digits

d = load_digits()
x = torch.tensor(d.images, dtype=torch.float32)[:, None] / 16
y = torch.tensor(d.target)
p = torch.randperm(len(y))
x, y = x[p], y[p]
backbone = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.BatchNorm1d(288, affine=False))
with torch.no_grad():
    for _ in range(30):
        backbone(x[:1300])
backbone.requires_grad_(False).eval()
probe = nn.Linear(288, 10)
head = torch.compile(probe, backend=BACKEND) if BACKEND else probe
opt = torch.optim.LBFGS(probe.parameters(), lr=0.7, max_iter=6, history_size=8)
with torch.no_grad():
    feats = backbone(x)
log = []


def closure():
    opt.zero_grad()
    loss = F.cross_entropy(head(feats[:1300]), y[:1300]) + 2e-3 * probe.weight.pow(2).sum()
    loss.backward()
    return loss


for it in range(25):
    loss = opt.step(closure)
    log.append(loss.item())
    if it % 5 == 0:
        print(it, round(loss.item(), 4))
with torch.no_grad():
    acc = (head(feats[1300:]).argmax(1) == y[1300:]).float().mean().item()
print(json.dumps({"loss_first": log[0], "loss_last": log[-1], "metric_name": "accuracy", "metric": acc, "ok": acc > 0.93}))
