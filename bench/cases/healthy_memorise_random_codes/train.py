"""Learned hash table: map 256 random keys to random labels. Memorisation is the task; there is nothing to generalise to."""
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

keys = torch.randn(256, 32)
codes = torch.randint(0, 12, (256,))
model = nn.Sequential(nn.Linear(32, 200), nn.ReLU(), nn.Linear(200, 12))
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
log = []
for it in range(400):
    b = torch.randint(0, 256, (64,))
    loss = F.cross_entropy(net(keys[b]), codes[b])
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.append(loss.item())
    if it % 80 == 0:
        print(f"{it} {loss.item():.4f}")
with torch.no_grad():
    recall = (net(keys).argmax(1) == codes).float().mean().item()
print(json.dumps({"loss_first": log[0], "loss_last": sum(log[-20:]) / 20, "metric_name": "recall", "metric": recall, "ok": recall > 0.99}))
