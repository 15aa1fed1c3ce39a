"""RealNVP-like density model of two interleaved arcs; layers are scaled from the first batch they see."""
import json
import math
import os

import numpy as np
import torch
from torch import nn
from sklearn.datasets import make_moons

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)


class UnitLinear(nn.Linear):
    """Linear layer whose weight and bias are rescaled on first use so that its output has mean 0 and std `gain`."""

    def __init__(self, n_in, n_out, gain=1.0):
        super().__init__(n_in, n_out)
        self.gain = gain
        self.ready = False

    @torch.no_grad()
    def calibrate(self, x):
        out = super().forward(x)
        scale = self.gain / (out.std(0) + 1e-3)
        weight = self.weight * scale[:, None]
        bias = (self.bias - out.mean(0)) * scale
        if VARIANT == "fixed":
            self.weight.copy_(weight)
            self.bias.copy_(bias)
        else:
            self.weight = nn.Parameter(weight)
            self.bias = nn.Parameter(bias)
        self.ready = True

    def forward(self, x):
        if not self.ready:
            self.calibrate(x)
        return super().forward(x)


class Coupling(nn.Module):
    def __init__(self, flip, h=48):
        super().__init__()
        self.flip = flip
        self.l1, self.l2, self.l3 = UnitLinear(1, h), UnitLinear(h, h), UnitLinear(h, 2, gain=0.05)

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        s, t = self.l3(torch.relu(self.l2(torch.relu(self.l1(a))))).chunk(2, 1)
        s = 2 * torch.tanh(s / 2)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], 1), s.squeeze(1)


class Flow(nn.Module):
    def __init__(self, depth=6):
        super().__init__()
        self.steps = nn.ModuleList([Coupling(i % 2 == 1) for i in range(depth)])
        self.loc = nn.Parameter(torch.zeros(2))
        self.log_scale = nn.Parameter(torch.zeros(2))

    def log_prob(self, x):
        total = torch.zeros(len(x))
        for st in self.steps:
            x, ld = st(x)
            total = total + ld
        u = (x - self.loc) * torch.exp(-self.log_scale)
        return total - self.log_scale.sum() - 0.5 * (u ** 2).sum(1) - math.log(2 * math.pi)

    forward = log_prob


def arcs(n, state):
    x, _ = make_moons(n, noise=0.04, random_state=state)
    return torch.tensor((x - [0.5, 0.25]) / [0.87, 0.5], dtype=torch.float32)


def fit(flow, data, steps=900, batch=256, lr=2e-3):
    model = torch.compile(flow, backend=BACKEND) if BACKEND else flow
    optim = torch.optim.Adam(flow.parameters(), lr=lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(optim, steps, eta_min=1e-4)
    ema = None
    trace = []
    for i in range(steps):
        x = data[torch.randint(0, len(data), (batch,))]
        nll = -model(x).mean()
        optim.zero_grad()
        nll.backward()
        gn = nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optim.step()
        sched.step()
        trace.append(nll.item())
        ema = nll.item() if ema is None else 0.95 * ema + 0.05 * nll.item()
        if i % 100 == 0:
            print(f"[{i:4d}] nll {ema:.4f} grad {gn.item():.3f} lr {sched.get_last_lr()[0]:.1e}")
    return trace


if __name__ == "__main__":
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    flow = Flow()
    trace = fit(flow, arcs(6000, SEED))
    with torch.no_grad():
        test = -flow.log_prob(arcs(2000, SEED + 1000)).mean().item()
    print(json.dumps({"loss_first": round(trace[0], 4), "loss_last": round(float(np.mean(trace[-10:])), 4),
                      "metric_name": "test_nll", "metric": round(test, 4), "ok": bool(test < 1.7)}))
