# Density estimation for a thin-ring point set: affine coupling flow, trained with warm restarts.
import itertools
import json
import math
import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

torch.set_num_threads(1)


@dataclass
class Config:
    seed: int = int(os.environ.get("CASE_SEED", "0"))
    backend: str = os.environ.get("CASE_COMPILE", "")
    couplings: int = 6
    width: int = 48
    lr: float = 4e-3
    period: int = 80
    steps: int = 400
    batch: int = 128
    max_norm: float = 0.5


class Coupling(nn.Module):
    def __init__(self, dim, width, flip):
        super().__init__()
        mask = (torch.arange(dim) % 2 == int(flip)).float()
        self.register_buffer("mask", mask)
        self.trunk = nn.Sequential(nn.Linear(dim, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.scale = nn.Linear(width, dim)
        self.shift = nn.Linear(width, dim)
        for head in (self.scale, self.shift):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, x):
        h = self.trunk(x * self.mask)
        s = 2.0 * torch.tanh(self.scale(h) / 2.0) * (1 - self.mask)
        t = self.shift(h) * (1 - self.mask)
        return x * s.exp() + t, s.sum(-1)


class Flow(nn.Module):
    def __init__(self, dim, cfg):
        super().__init__()
        self.steps = nn.ModuleList([Coupling(dim, cfg.width, i % 2) for i in range(cfg.couplings)])

    def forward(self, x):
        logdet = x.new_zeros(len(x))
        for step in self.steps:
            x, ld = step(x)
            logdet = logdet + ld
        return x, logdet


def nll(model, x):
    z, logdet = model(x)
    return (0.5 * z.pow(2).sum(-1) + 0.5 * z.size(-1) * math.log(2 * math.pi) - logdet).mean()


def batches(x, size, gen):
    while True:
        order = torch.randperm(len(x), generator=gen)
        for i in range(0, len(x) - size + 1, size):
            yield x[order[i:i + size]]


def points(n, rng):
    """Two thin interlocking rings in four correlated coordinates, in units of millimetres / 10."""
    a = rng.uniform(0, 2 * np.pi, n)
    which = rng.integers(0, 2, n)
    r = 1.0 + 0.03 * rng.normal(size=n)
    p = np.stack([r * np.cos(a) + which - 0.5, r * np.sin(a)], 1)
    extra = np.stack([p[:, 0] * p[:, 1], np.sin(2 * p[:, 0])], 1) + 0.02 * rng.normal(size=(n, 2))
    return torch.tensor(np.concatenate([p, extra], 1) * 0.35, dtype=torch.float32)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    train, held_out = points(6000, rng), points(1500, rng)
    flow = Flow(4, cfg)
    model = torch.compile(flow, backend=cfg.backend) if cfg.backend else flow
    optimizer = torch.optim.Adam(flow.parameters(), lr=cfg.lr)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=cfg.period)
    stream = batches(train, cfg.batch, torch.Generator().manual_seed(cfg.seed))
    trace, clipped = [], 0
    for step, x in enumerate(itertools.islice(stream, cfg.steps)):
        loss = nll(model, x)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(flow.parameters(), cfg.max_norm)
        clipped += int(norm > cfg.max_norm)
        optimizer.step()
        scheduler.step()
        trace.append(loss.item())
        if step % 40 == 0:
            print(f"step {step:4d}  nll {loss.item():+.4f}  |g| {norm:.2f}  lr {scheduler.get_last_lr()[0]:.2e}")
    with torch.no_grad():
        test = nll(model, held_out).item()
    cov = np.cov(train.numpy().T)
    gauss = 0.5 * (np.linalg.slogdet(cov)[1] + 4 * (1 + math.log(2 * math.pi)))
    print(f"clipped on {clipped} of {cfg.steps} steps; Gaussian baseline {gauss:+.3f}, flow {test:+.3f}")
    r = lambda v: round(float(v), 4) if math.isfinite(v) else None
    print(json.dumps({"loss_first": r(trace[0]), "loss_last": r(np.mean(trace[-20:])), "metric_name": "test_nll_gain",
                      "metric": r(gauss - test), "ok": bool(gauss - test > 3.0)}))


main()
