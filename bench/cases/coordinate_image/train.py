"""Fit a procedurally drawn image with a coordinate MLP (x, y) -> intensity."""
import json
import math
import os

import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
WIDTH = 64 if VARIANT == "fixed" else 2

axis = torch.linspace(-1, 1, 36)
yy, xx = torch.meshgrid(axis, axis, indexing="ij")
ring = torch.sin(7 * (xx ** 2 + yy ** 2).sqrt() + 2 * torch.atan2(yy, xx + 1e-6))
image = ring * 0.7 + 0.5 * torch.sign(xx * yy)
coords = torch.stack([xx.flatten(), yy.flatten()], 1)
value = image.flatten().unsqueeze(1)
value = (value - value.mean()) / value.std()


def features(c):
    return torch.cat([c] + [f(c * k * math.pi) for k in (1, 2) for f in (torch.sin, torch.cos)], 1)


inr = nn.Sequential(nn.Linear(10, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
net = torch.compile(inr, backend=BACKEND) if BACKEND else inr
opt = torch.optim.Adam(inr.parameters(), lr=0.012)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 500, eta_min=2e-3)
inputs = features(coords)
hist = []
for it in range(500):
    b = torch.randint(0, len(inputs), (240,))
    loss = nn.functional.mse_loss(net(inputs[b]), value[b])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    hist.append(loss.item())
    if it % 100 == 0:
        print(f"it {it} mse {loss.item():.4f}")
with torch.no_grad():
    mse = nn.functional.mse_loss(net(inputs), value).item()
print(json.dumps({"loss_first": hist[0], "loss_last": sum(hist[-20:]) / 20, "metric_name": "mse", "metric": mse, "ok": mse < 0.12}))
