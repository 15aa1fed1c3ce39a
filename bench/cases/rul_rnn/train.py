import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")

torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

CYCLES, SENSORS, MAX_RUL = 80, 6, 125.0


def engines(n):
    """sensor histories of engines whose wear accumulates with random load; target: scaled remaining life"""
    load = np.random.gamma(2.0, 0.5, (n, CYCLES))
    rate = np.random.uniform(0.6, 1.4, (n, 1))
    wear = np.cumsum(load * rate, 1) / CYCLES
    mix = np.random.RandomState(7).normal(0, 1, (2, SENSORS))
    x = np.stack([load - 1.0, np.gradient(wear, axis=1) * CYCLES - 1.0], -1) @ mix
    x += 0.3 * np.random.normal(size=x.shape)
    rul = np.clip(MAX_RUL * (2.2 - wear[:, -1]) / 2.0, 0, MAX_RUL) / MAX_RUL
    return torch.tensor(x, dtype=torch.float32), torch.tensor(rul, dtype=torch.float32)


class RULNet(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.inp = nn.Linear(SENSORS, hidden)
        self.rec = nn.Linear(hidden, hidden, bias=False)
        self.regressor = nn.Linear(hidden, 1)
        self.dt = 0.08

    def forward(self, x):
        # continuous-time recurrent cell, one Euler step per cycle
        drive = self.inp(x)
        h = torch.zeros(len(x), drive.size(-1))
        for u in drive.unbind(1):
            h = h + self.dt * torch.relu(u + self.rec(h))
        return self.regressor(h).squeeze(-1)


tr_x, tr_y = engines(800)
te_x, te_y = engines(200)
mean, std = tr_x.mean((0, 1)), tr_x.std((0, 1))
tr_x, te_x = (tr_x - mean) / std, (te_x - mean) / std
loader = DataLoader(TensorDataset(tr_x, tr_y), batch_size=40, shuffle=True)

net = RULNet()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
criterion = nn.MSELoss()

losses = []
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        if VARIANT == "fixed":
            nn.utils.clip_grad_norm_(net.parameters(), 0.2)
        optimizer.step()
        losses.append(loss.item())
    print(f"Epoch {epoch + 1}: loss {np.mean(losses[-20:]):.5f}")

with torch.no_grad():
    rmse = (model(te_x) - te_y).pow(2).mean().sqrt().item()
score = rmse / te_y.std().item()
n = lambda v: round(float(v), 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": n(losses[0]), "loss_last": n(np.mean(losses[-20:])), "metric_name": "rmse_over_std",
                  "metric": n(score), "ok": bool(math.isfinite(score) and score < 0.7)}))
