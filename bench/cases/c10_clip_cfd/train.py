"""Surrogate of surface pressure on a family of airfoil-like profiles (pointwise MLP with geometry code)."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn

VAR = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)
CFG = dict(lr=1e-3, momentum=0.9, batch=16, steps=300, surf_weight=20.0, max_norm=100.0 if VAR == "fixed" else 0.5)


def field(n, g):
    geo = g.uniform(-1, 1, size=(n, 4)).astype(np.float32)           # camber, thickness, incidence, mach
    s = np.linspace(0, 1, 40, dtype=np.float32)
    c, t, a, m = [geo[:, k:k + 1] for k in range(4)]
    cp = -(1 + 0.5 * t) * np.sin(math.pi * s) + 0.9 * a * np.cos(math.pi * s) + 0.7 * c * np.sin(2 * math.pi * s) + 0.4 * m * a * np.exp(-6 * s)
    vel = 0.4 * cp ** 2 + 0.3 * m
    pts = np.concatenate([np.broadcast_to(geo[:, None], (n, 40, 4)), np.stack([s, np.sin(math.pi * s)], -1)[None].repeat(n, 0)], -1)
    y = np.stack([vel, cp], -1)
    return torch.from_numpy(pts).float(), torch.from_numpy(y).float()


class FourierFeatures(nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.register_buffer("proj", torch.randn(d, k) * 0.8)

    def forward(self, x):
        h = x @ self.proj
        return torch.cat([x, torch.sin(h), torch.cos(h)], -1)


class Surrogate(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.lift = FourierFeatures(6, 16)
        self.inp = nn.Linear(6 + 32, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.heads = nn.ModuleDict({"velocity": nn.Linear(width, 1), "pressure": nn.Linear(width, 1)})

    def forward(self, x):
        h = torch.nn.functional.gelu(self.inp(self.lift(x)))
        for lin, nrm in zip(self.layers, self.norms):
            h = h + torch.nn.functional.gelu(lin(nrm(h)))
        return torch.cat([self.heads["velocity"](h), self.heads["pressure"](h)], -1)


def objective(pred, y):
    err = (pred - y) ** 2
    return err[..., 0].mean() + CFG["surf_weight"] * err[..., 1].mean()


def surface_error(model, x, y):
    with torch.no_grad():
        p = model(x)[..., 1]
    return ((p - y[..., 1]).norm() / (y[..., 1] - y[..., 1].mean()).norm()).item()


g = np.random.default_rng(SEED)
train_x, train_y = field(400, g)
val_x, val_y = field(80, g)
model = Surrogate()
if BACKEND:
    model = torch.compile(model, backend=BACKEND)
opt = torch.optim.SGD(model.parameters(), lr=CFG["lr"], momentum=CFG["momentum"])
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min(1.0, (k + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * k / CFG["steps"])))
losses, norms = [], []
for step in range(CFG["steps"]):
    idx = torch.randint(len(train_x), (CFG["batch"],))
    loss = objective(model(train_x[idx]), train_y[idx])
    opt.zero_grad()
    loss.backward()
    norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), CFG["max_norm"])))
    opt.step()
    sched.step()
    losses.append(loss.item())
    if step % 50 == 49:
        print(f"step {step + 1} loss {np.mean(losses[-20:]):.4f} grad norm {np.mean(norms[-20:]):.2f} surf err {surface_error(model, val_x, val_y):.3f}")
err = surface_error(model, val_x, val_y)
print(json.dumps({"loss_first": losses[0], "loss_last": losses[-1], "metric_name": "relative_surface_error", "metric": err, "ok": err < 0.25}))
