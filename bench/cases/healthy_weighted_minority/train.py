"""Rare-event detection; the sampler draws both classes equally often."""
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

from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

n = 5000
y = (torch.rand(n) < 0.05).long()
x = torch.randn(n, 20)
x[:, :3] += 1.3 * y[:, None]
x[:, 3] += 1.5 * (x[:, 4] * y)
train_x, train_y, test_x, test_y = x[:3800], y[:3800], x[3800:], y[3800:]
sampler = WeightedRandomSampler(torch.where(train_y == 1, 0.95, 0.05).double(), 3800)
loader = DataLoader(TensorDataset(train_x, train_y), batch_size=76, sampler=sampler)
model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
log = []
for epoch in range(5):
    model.train()
    for a, b in loader:
        loss = F.cross_entropy(net(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.append(loss.item())
    model.eval()
    with torch.no_grad():
        pred = net(test_x).argmax(1)
    bal = sum((pred[test_y == c] == c).float().mean().item() for c in (0, 1)) / 2
    print(f"epoch {epoch} loss {sum(log[-50:]) / 50:.3f} balanced accuracy {bal:.3f}")
print(json.dumps({"loss_first": log[0], "loss_last": sum(log[-50:]) / 50, "metric_name": "balanced_accuracy", "metric": bal, "ok": bal > 0.8}))
