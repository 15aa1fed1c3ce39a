"""Regression of a smooth 2-D surface. The network is built narrow and then widened by copying units,
so that every width starts from the same function."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")

torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

NARROW, WIDE = 3, 96


def surface(xy):
    return torch.sin(3 * xy[:, :1]) * torch.cos(2 * xy[:, 1:]) + 0.5 * torch.cos(4 * xy[:, :1] + 2 * xy[:, 1:])


def widen(first, second, width):
    """function-preserving widening of the units between two linear layers"""
    old = first.out_features
    source = torch.arange(width) % old
    copies = torch.bincount(source, minlength=old).float()
    a, b = nn.Linear(first.in_features, width), nn.Linear(width, second.out_features)
    with torch.no_grad():
        a.weight.copy_(first.weight[source])
        a.bias.copy_(first.bias[source])
        b.weight.copy_(second.weight[:, source] / copies[source])
        b.bias.copy_(second.bias)
        if VARIANT == "fixed":
            for p in (a.weight, a.bias):
                p.add_(torch.randn_like(p) * 0.5 * p.std())
    return a, b


fc1, fc2, fc3 = nn.Linear(2, NARROW), nn.Linear(NARROW, NARROW), nn.Linear(NARROW, 1)
fc1, fc2 = widen(fc1, fc2, WIDE)
fc2, fc3 = widen(fc2, fc3, WIDE)
net = nn.Sequential(fc1, nn.Tanh(), fc2, nn.Tanh(), fc3)
model = torch.compile(net, backend=BACKEND) if BACKEND else net

X = torch.rand(2000, 2) * 4 - 2
Y = surface(X) + 0.02 * torch.randn(2000, 1)
X_test = torch.rand(500, 2) * 4 - 2
Y_test = surface(X_test)

opt = torch.optim.Adam(net.parameters(), lr=1e-2)
mse = nn.MSELoss()
losses = []
for step in range(350):
    i = torch.randint(0, len(X), (128,))
    loss = mse(model(X[i]), Y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step % 50 == 0:
        print(f"step {step}: mse {loss.item():.5f}")

with torch.no_grad():
    r2 = 1 - (mse(model(X_test), Y_test) / Y_test.var()).item()
f = lambda v: round(float(v), 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": f(losses[0]), "loss_last": f(np.mean(losses[-10:])), "metric_name": "test_r2", "metric": f(r2),
                  "ok": bool(r2 > 0.7)}))
