"""Bit-string parity of four of ten bits: a long plateau at ln 2 before the solution is found."""
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

mask = torch.zeros(10)
mask[torch.randperm(10)[:4]] = 1


def batch(n):
    bits = torch.randint(0, 2, (n, 10)).float()
    return bits * 2 - 1, ((bits * mask).sum(1) % 2).long()


model = nn.Sequential(nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=1.2e-3)
log = []
for it in range(900):
    x, y = batch(100)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.append(loss.item())
    if it % 100 == 0:
        print(f"{it} {loss.item():.4f}")
with torch.no_grad():
    x, y = batch(2000)
    acc = (net(x).argmax(1) == y).float().mean().item()
print(json.dumps({"loss_first": log[0], "loss_last": sum(log[-20:]) / 20, "metric_name": "accuracy", "metric": acc, "ok": acc > 0.97}))
