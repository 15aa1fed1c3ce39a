import json
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)

SENSORS = 32
MODES = 5
KAPPA = 0.01


def heat_samples(n, points, rng):
    """u0 = random sine series on [0,1]; exact solution of u_t = k u_xx with cold ends."""
    m = np.arange(1, MODES + 1)
    coef = rng.standard_normal((n, MODES)) / m ** 0.5
    xs = np.linspace(0, 1, SENSORS)
    u0 = coef @ np.sin(np.pi * m[:, None] * xs[None])
    q = rng.uniform(0, 1, size=(n, points, 2))            # (x, t) queries
    basis = np.sin(np.pi * q[..., :1] * m) * np.exp(-KAPPA * (np.pi * m) ** 2 * q[..., 1:])
    u = (basis * coef[:, None]).sum(-1)
    f = lambda a: torch.tensor(a, dtype=torch.float32)
    return f(u0), f(q), f(u)


class Sine(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = w

    def forward(self, x):
        return torch.sin(self.w * x)


class DeepONet(nn.Module):
    def __init__(self, p=40, width=64):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(SENSORS, width), nn.GELU(), nn.Linear(width, p))
        self.trunk = nn.Sequential(nn.Linear(2, width), Sine(4.0), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, p))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, u0, q):
        b = self.branch(u0)
        t = self.trunk(q)
        return torch.einsum("bp,bnp->bn", b, t) / b.shape[-1] ** 0.5 + self.bias


def relative_l2(model, data):
    u0, q, u = data
    model.eval()
    with torch.no_grad():
        d = model(u0, q) - u
    model.train()
    return (d.norm(dim=1) / u.norm(dim=1)).mean().item()


def run_epoch(net, loader, optimizer, scheduler, log):
    total = 0.0
    for u0, q, u in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(net(u0, q), u)
        loss.backward()
        optimizer.step()
        if variant == "faulty":
            scheduler.step()
        log.append(loss.item())
        total += loss.item()
    if variant != "faulty":
        scheduler.step()
    return total / len(loader)


rng = np.random.default_rng(seed)
train_set = TensorDataset(*heat_samples(640, 64, rng))
test = heat_samples(128, 128, rng)
loader = DataLoader(train_set, batch_size=40, shuffle=True)

model = DeepONet()
net = torch.compile(model, backend=backend) if backend else model
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

log = []
for epoch in range(22):
    mean_loss = run_epoch(net, loader, optimizer, scheduler, log)
    if epoch % 3 == 0 or epoch == 21:
        print(f"epoch {epoch:2d}  mse {mean_loss:.5f}  rel-L2 {relative_l2(model, test):.4f}")

err = relative_l2(model, test)
print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-8:])), "metric_name": "test_relative_l2",
                  "metric": err, "ok": bool(err < 0.25)}))
