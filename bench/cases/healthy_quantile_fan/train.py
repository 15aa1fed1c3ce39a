"""Pinball loss for the 5, 50 and 95 per cent quantiles of a heteroscedastic series, TCN-style model."""
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

LEVELS = torch.tensor([0.05, 0.5, 0.95])


class Causal(nn.Module):
    def __init__(self, i, o, d):
        super().__init__()
        self.pad = 2 * d
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(i, o, 3, dilation=d))

    def forward(self, x):
        return torch.relu(self.conv(F.pad(x, (self.pad, 0))))


class TCN(nn.Module):
    def __init__(self, c=18):
        super().__init__()
        self.stack = nn.Sequential(Causal(1, c, 1), Causal(c, c, 2), Causal(c, c, 4))
        self.out = nn.Linear(c, 3)

    def forward(self, x):
        return self.out(self.stack(x)[..., -1])


def series(n, length=22):
    t = torch.arange(length + 1).float()
    phase = torch.rand(n, 1) * 6.28
    amp = 0.2 + torch.rand(n, 1)
    base = torch.sin(0.5 * t + phase) * amp
    y = base + 0.35 * amp * torch.randn(n, length + 1)
    return y[:, None, :-1], y[:, -1:]


model = TCN()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
log = []
for it in range(350):
    x, y = series(70)
    err = y - net(x)
    loss = torch.maximum(LEVELS * err, (LEVELS - 1) * err).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.append(loss.item())
    if it % 70 == 0:
        print(f"{it} pinball {loss.item():.4f}")
with torch.no_grad():
    x, y = series(3000)
    q = net(x)
    cover = ((y >= q[:, :1]) & (y <= q[:, 2:])).float().mean().item()
print(json.dumps({"loss_first": log[0], "loss_last": sum(log[-20:]) / 20, "metric_name": "coverage_90", "metric": cover, "ok": abs(cover - 0.9) < 0.06}))
