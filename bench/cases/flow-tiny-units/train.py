"""Normalising flow on sensor offsets measured in metres (values around 1e-3), with EMA weights."""
import copy
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)

SCALE = 1e-3
ACCUM, STEPS = 2, 200


def sample(n):
    """x0 ~ N(0,1); x1 | x0 ~ N(0.5 x0^2 - 0.5, 0.3); x2 ~ N(sin 2 x0, 0.4); x3 ~ N(0.8 x1, 0.6)."""
    e = torch.randn(n, 4)
    x0 = e[:, 0]
    x1 = 0.5 * x0 ** 2 - 0.5 + 0.3 * e[:, 1]
    x2 = torch.sin(2 * x0) + 0.4 * e[:, 2]
    x3 = 0.8 * x1 + 0.6 * e[:, 3]
    logp = -0.5 * (e ** 2).sum(1) - 2 * math.log(2 * math.pi) - math.log(0.3 * 0.4 * 0.6)
    return torch.stack([x0, x1, x2, x3], 1) * SCALE, logp - 4 * math.log(SCALE)


class ActNorm(nn.Module):
    """Scale and shift set from the first batch, then learnt like everything else."""

    def __init__(self, d):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(d))
        self.shift = nn.Parameter(torch.zeros(d))

    @torch.no_grad()
    def init_from(self, x):
        self.log_scale.copy_(-x.std(0).log())
        self.shift.copy_(-x.mean(0))

    def forward(self, x):
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum()


class Coupling(nn.Module):
    def __init__(self, d, hidden, flip):
        super().__init__()
        self.flip, self.k = flip, d // 2
        self.net = nn.Sequential(nn.Linear(self.k, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(),
                                 nn.Linear(hidden, 2 * (d - self.k)))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = 1.5 * torch.tanh(s)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], 1), s.sum(1)


class Mix(nn.Module):
    """Fixed random rotation between couplings."""

    def __init__(self, d):
        super().__init__()
        q, _ = torch.linalg.qr(torch.randn(d, d))
        self.q = nn.Parameter(q, requires_grad=False)

    def forward(self, x):
        return x @ self.q, torch.zeros(())


class Flow(nn.Module):
    def __init__(self, d=4, blocks=4, hidden=48):
        super().__init__()
        self.actnorm = ActNorm(d)
        self.layers = nn.ModuleList()
        for i in range(blocks):
            self.layers.append(Coupling(d, hidden, flip=bool(i % 2)))
            if i % 2 == 1:
                self.layers.append(Mix(d))

    def forward(self, x):
        x, logdet = self.actnorm(x)
        for layer in self.layers:
            x, ld = layer(x)
            logdet = logdet + ld
        base = -0.5 * (x ** 2).sum(1) - 0.5 * x.shape[1] * math.log(2 * math.pi)
        return base + logdet


def main():
    train, _ = sample(6000)
    test, true_logp = sample(2000)
    flow = Flow()
    flow.actnorm.init_from(train[:256])
    ema = copy.deepcopy(flow).requires_grad_(False)
    net = torch.compile(flow, backend=BACKEND) if BACKEND else flow
    opt = torch.optim.Adam([
        {"params": [p for p in flow.layers.parameters() if p.requires_grad], "lr": 3e-3},
        {"params": [flow.actnorm.log_scale], "lr": 3e-3},
        {"params": [flow.actnorm.shift], "lr": 1e-6}])
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 0.5 * (1 + math.cos(math.pi * s / STEPS)) + 0.01)
    trace = []
    for step in range(STEPS):
        opt.zero_grad()
        total = 0.0
        for _ in range(ACCUM):
            xb = train[torch.randint(0, len(train), (128,))]
            nll = -net(xb).mean() / ACCUM
            nll.backward()
            total += nll.item()
        nn.utils.clip_grad_norm_(flow.layers.parameters(), 2.0)
        opt.step()
        sched.step()
        with torch.no_grad():
            for pe, p in zip(ema.parameters(), flow.parameters()):
                pe.lerp_(p, 0.05)
        trace.append(total)
        if step % 40 == 0:
            print(f"step {step:4d} nll {total:9.4f} nats")
    with torch.no_grad():
        gap = (true_logp - ema(test)).mean().item()
    print(f"test gap to the true density: {gap:.4f} nats")
    print(json.dumps({"loss_first": trace[0], "loss_last": float(np.mean(trace[-20:])),
                      "metric_name": "kl_to_truth_nats", "metric": gap, "ok": gap < 0.3}))


main()
