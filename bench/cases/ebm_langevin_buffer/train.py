"""Energy-based density of a two-dimensional mixture; negatives from short Langevin chains with a replay buffer."""
import json
import math
import os
import random

import numpy as np
import torch
from torch import nn

SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)


def moons(n):
    t = torch.rand(n) * math.pi
    side = torch.randint(0, 2, (n,))
    x = torch.where(side == 0, t.cos(), 1 - t.cos()) - 0.5
    y = torch.where(side == 0, t.sin(), 0.5 - t.sin()) - 0.25
    return 1.4 * torch.stack([x, y], 1) + 0.12 * torch.randn(n, 2)


class Energy(nn.Module):
    def __init__(self, h=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1) + 0.05 * x.pow(2).sum(-1)


class Sampler:
    def __init__(self, energy, size=4000, step=0.003):
        self.energy, self.step = energy, step
        self.buffer = torch.rand(size, 2) * 5 - 2.5

    def chain(self, x, k):
        params = list(self.energy.parameters())
        for p in params:
            p.requires_grad_(False)
        for j in range(k):
            x = x.detach().requires_grad_(True)
            g, = torch.autograd.grad(self.energy(x).sum(), x)
            eps = self.step
            x = x - eps * g.clamp(-30, 30) + math.sqrt(2 * eps) * torch.randn_like(x)
            x = x.clamp(-4, 4)
        for p in params:
            p.requires_grad_(True)
        return x.detach()

    def draw(self, n, k):
        idx = torch.randperm(len(self.buffer))[:n]
        x = self.buffer[idx].clone()
        fresh = torch.rand(n) < 0.05
        x[fresh] = torch.rand(int(fresh.sum()), 2) * 5 - 2.5
        x = self.chain(x, k)
        self.buffer[idx] = x
        return x


def energy_distance(a, b):
    d = lambda u, v: torch.cdist(u, v).mean().item()
    return 2 * d(a, b) - d(a, a) - d(b, b)


net = Energy()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
sampler = Sampler(model)
opt = torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.0, 0.999))
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 320, 1e-4)
curve = []
start = energy_distance(torch.rand(2000, 2) * 5 - 2.5, moons(2000))
for it in range(320):
    pos = moons(128)
    neg = sampler.draw(128, 25)
    e_pos, e_neg = model(pos), model(neg)
    gap = e_pos.mean() - e_neg.mean()
    loss = gap + 0.02 * (e_pos.pow(2).mean() + e_neg.pow(2).mean())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    sched.step()
    curve.append(loss.item())
    if it % 40 == 0:
        print(f"it {it:4d}  loss {loss.item():+.4f}  gap {gap.item():+.4f}  E+ {e_pos.mean().item():+.3f}")
sample = sampler.chain(torch.rand(1500, 2) * 5 - 2.5, 1000)
dist = energy_distance(sample, moons(2000))
print(f"energy distance: uniform noise {start:.4f}, fresh long chains {dist:.4f}")
f = lambda v: round(v, 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": f(curve[0]), "loss_last": f(float(np.mean(curve[-20:]))), "metric_name": "relative_energy_distance",
                  "metric": f(dist / start), "ok": bool(dist < 0.15 * start)}))
