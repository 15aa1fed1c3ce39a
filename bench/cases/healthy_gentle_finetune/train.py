"""Train a digit classifier, then adapt it gently to slightly rotated contrast with a frozen stem."""
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
x = torch.tensor(d.data, dtype=torch.float32) / 16
y = torch.tensor(d.target)
p = torch.randperm(len(y))
x, y = x[p], y[p]
shifted = (x ** 1.15 * 0.95 + 0.02)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(64, 90)
        self.mid = nn.Linear(90, 50)
        self.head = nn.Linear(50, 10)

    def forward(self, v):
        return self.head(F.gelu(self.mid(F.gelu(self.stem(v)))))


model = Net()
net = torch.compile(model, backend=BACKEND) if BACKEND else model


def fit(data, params, lr, steps):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.01)
    out = []
    for it in range(steps):
        b = torch.randint(0, 1400, (52,))
        loss = F.cross_entropy(net(data[b]), y[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
        if it % 100 == 0:
            print(f"lr {lr} step {it} loss {loss.item():.4f}")
    return out


first = fit(x, model.parameters(), 3e-3, 260)
for q in model.stem.parameters():
    q.requires_grad_(False)
second = fit(shifted, [q for q in model.parameters() if q.requires_grad], 1e-5, 200)
with torch.no_grad():
    acc = (net(shifted[1400:]).argmax(1) == y[1400:]).float().mean().item()
print(json.dumps({"loss_first": first[0], "loss_last": sum(second[-20:]) / 20, "metric_name": "accuracy", "metric": acc, "ok": acc > 0.92}))
