# Minibatch optimal-transport generator: noise -> 2-D points, entropic OT between generated and real minibatches.
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


def cross_shape(n):
    """a noisy cross"""
    side = torch.randint(0, 2, (n, 1)).float()
    along, across = torch.rand(n, 1) * 2 - 1, 0.08 * torch.randn(n, 1)
    return torch.cat([side * along + (1 - side) * across, (1 - side) * along + side * across], 1)


def sinkhorn_plan(cost, reg=0.05, iters=30):
    n, m = cost.shape
    f = torch.zeros(n)
    g = torch.zeros(m)
    for _ in range(iters):
        f = -reg * torch.logsumexp((g[None] - cost) / reg - math.log(m), 1)
        g = -reg * torch.logsumexp((f[:, None] - cost) / reg - math.log(n), 0)
    return torch.exp((f[:, None] + g[None] - cost) / reg) / (n * m)


def ot_loss(x, y):
    cost = torch.cdist(x, y).pow(2)
    with torch.no_grad():
        plan = sinkhorn_plan(cost)
    return (plan * cost).sum()


class Generator(nn.Module):
    def __init__(self, n_features=2):
        super().__init__()
        self.fc1 = nn.Linear(n_features, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, 2)

    def forward(self, z):
        z = torch.relu(self.fc1(z))
        z = torch.relu(self.fc2(z))
        return self.fc3(z)


G = Generator()
model = torch.compile(G, backend=BACKEND) if BACKEND else G
optimizer = torch.optim.Adam(G.parameters(), lr=0.005)
data = cross_shape(4000)

n_iter, size_batch = 250, 100
losses = []
for i in range(n_iter):
    xn = torch.randn(size_batch, 2)
    xd = data[torch.randint(0, len(data), (size_batch,))]
    xg = model(xn)
    loss = ot_loss(xg, xd)
    if VARIANT == "fixed":
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if i % 25 == 0:
        print(f"iter {i:4d} OT loss {loss.item():.4f}")

with torch.no_grad():
    final = ot_loss(model(torch.randn(400, 2)), cross_shape(400)).item()
rnd = lambda v: round(float(v), 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": rnd(losses[0]), "loss_last": rnd(np.mean(losses[-10:])), "metric_name": "ot_distance",
                  "metric": rnd(final), "ok": bool(math.isfinite(final) and final < 0.12)}))
