"""Mixture density network for a two-branched curve with small noise."""
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

class MDN(nn.Module):
    def __init__(self, width=36, k=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.logit = nn.Linear(width, k)
        self.mean = nn.Linear(width, k)
        self.log_std = nn.Linear(width, k)
        with torch.no_grad():
            self.mean.bias.copy_(torch.linspace(-1, 1, k))

    def forward(self, x):
        h = self.body(x)
        return self.logit(h), self.mean(h), self.log_std(h).clamp(-4, 2)


def sample(n):
    x = torch.rand(n, 1) * 2 - 1
    side = torch.randint(0, 2, (n, 1)) * 2.0 - 1
    return x, side * (0.4 + 0.3 * torch.sin(3 * x)) + 0.03 * torch.randn(n, 1)


def nll(out, y):
    logit, mean, log_std = out
    comp = -0.5 * ((y - mean) / log_std.exp()) ** 2 - log_std - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(F.log_softmax(logit, 1) + comp, 1).mean()


model = MDN()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
log = []
for it in range(500):
    x, y = sample(130)
    loss = nll(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.append(loss.item())
    if it % 100 == 0:
        print(f"{it} nll {loss.item():.3f}")
last = sum(log[-20:]) / 20
print(json.dumps({"loss_first": log[0], "loss_last": last, "metric_name": "nll", "metric": last, "ok": last < -0.7}))
