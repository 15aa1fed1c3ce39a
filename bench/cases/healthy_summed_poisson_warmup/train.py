"""Spike-count regression: summed Poisson loss, learning rate chosen for it, accumulation and linear warm-up."""
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

X = torch.randn(6000, 15)
w = torch.randn(15, 12) / 15 ** 0.5
rate = torch.exp(1.6 + 0.5 * torch.tanh(X @ w))
Y = torch.poisson(rate)
model = nn.Sequential(nn.Linear(15, 40), nn.Softplus(), nn.Linear(40, 12))
net = torch.compile(model, backend=BACKEND) if BACKEND else model
ACCUM, UPDATES = 4, 260
opt = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min(1.0, (k + 1) / 80) * (1.0 if k < 180 else 0.3))
log = []
for u in range(UPDATES):
    opt.zero_grad()
    total = 0.0
    for _ in range(ACCUM):
        b = torch.randint(0, 5000, (64,))
        loss = F.poisson_nll_loss(net(X[b]), Y[b], log_input=True, full=True, reduction="sum")
        loss.backward()
        total += loss.item()
    opt.step()
    sched.step()
    log.append(total)
    if u % 40 == 0:
        print(f"update {u} loss {total:.1f} lr {sched.get_last_lr()[0]:.4f}")
with torch.no_grad():
    pred = net(X[5000:]).exp()
    r2 = 1 - ((pred - rate[5000:]) ** 2).mean().item() / rate[5000:].var().item()
print(json.dumps({"loss_first": log[0], "loss_last": sum(log[-10:]) / 10, "metric_name": "r2_rate", "metric": r2, "ok": r2 > 0.8}))
