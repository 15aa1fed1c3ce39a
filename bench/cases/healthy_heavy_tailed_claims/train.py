"""Robust regression on Student-t noise with two degrees of freedom: single residuals are huge, Huber loss bounds their gradient."""
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

X = torch.randn(5000, 10)
signal = 1.5 * torch.sin(X[:, 0] * 1.5) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3]
noise = torch.distributions.StudentT(2.0).sample((5000,)) * 0.4
Y = signal + noise
model = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98))
log = []
for it in range(450):
    b = torch.randint(0, 4200, (84,))
    loss = F.huber_loss(net(X[b]).squeeze(1), Y[b], delta=0.7)
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update_parameters(model)
    log.append(loss.item())
    if it % 90 == 0:
        print(f"{it} huber {loss.item():.4f}")
with torch.no_grad():
    pred = ema(X[4200:]).squeeze(1)
r2 = 1 - ((pred - signal[4200:]) ** 2).mean().item() / signal[4200:].var().item()
print(json.dumps({"loss_first": log[0], "loss_last": sum(log[-20:]) / 20, "metric_name": "r2_signal", "metric": r2, "ok": r2 > 0.75}))
