"""Noise prediction on 2-D rings, SGD with Nesterov momentum and clipping."""
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
STEPS = 40
MAX_NORM = None if VARIANT == "fixed" else 1e-4


class EpsModel(nn.Module):
    def __init__(self, width=70):
        super().__init__()
        self.time = nn.Linear(4, width)
        self.inp = nn.Linear(2, width)
        self.h1 = nn.Linear(width, width)
        self.h2 = nn.Linear(width, width)
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        a = t[:, None] / STEPS * math.pi
        code = torch.cat([a.sin(), a.cos(), (2 * a).sin(), (2 * a).cos()], 1)
        h = nn.functional.silu(self.inp(x) + self.time(code))
        h = h + nn.functional.silu(self.h1(h))
        h = h + nn.functional.silu(self.h2(h))
        return self.out(h)


beta = torch.linspace(2e-3, 0.25, STEPS)
abar = torch.cumprod(1 - beta, 0)


def data(n):
    ang = torch.rand(n) * 2 * math.pi
    return torch.stack([ang.cos(), ang.sin()], 1) * 1.3 + 0.05 * torch.randn(n, 2)


def noise_loss(model, n):
    x0, t, eps = data(n), torch.randint(0, STEPS, (n,)), torch.randn(n, 2)
    a = abar[t][:, None]
    return ((model(a.sqrt() * x0 + (1 - a).sqrt() * eps, t.float()) - eps) ** 2).mean()


@torch.no_grad()
def sample(model, n):
    x = torch.randn(n, 2)
    for i in reversed(range(STEPS)):
        e = model(x, torch.full((n,), float(i)))
        x = (x - beta[i] / (1 - abar[i]).sqrt() * e) / (1 - beta[i]).sqrt()
        if i:
            x = x + beta[i].sqrt() * torch.randn(n, 2)
    return x


model = EpsModel()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.SGD(model.parameters(), lr=0.06, momentum=0.9, nesterov=True)
losses = []
for it in range(600):
    loss = noise_loss(net, 110)
    opt.zero_grad()
    loss.backward()
    if MAX_NORM is not None:
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    opt.step()
    losses.append(loss.item())
    if it % 100 == 0:
        print(f"it {it} loss {loss.item():.4f}")
off = (sample(model, 500).norm(dim=1) - 1.3).abs().mean().item()
last = sum(losses[-40:]) / 40
print(json.dumps({"loss_first": losses[0], "loss_last": last, "metric_name": "distance_from_ring", "metric": off,
                  "ok": off < 0.4 and last < 0.45}))
