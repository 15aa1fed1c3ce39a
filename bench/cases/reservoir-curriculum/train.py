"""Echo-state network on Mackey-Glass: fixed random reservoir, readout fitted full-batch with Rprop,
prediction horizon lengthened in stages."""
import json
import os

import numpy as np
import torch
from torch import nn

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)

STAGES = [(1, 60), (6, 60), (16, 60), (30, 120)]      # (steps ahead, optimizer steps)
WASHOUT, N_TRAIN, N_TEST = 200, 2400, 600


def mackey_glass(n, tau=17, discard=500):
    hist = list(1.2 + 0.1 * np.random.randn(tau * 10 + 1))
    out = []
    for i in range((n + discard) * 10):
        x, xd = hist[-1], hist[-1 - tau * 10]
        hist.append(x + 0.1 * (0.2 * xd / (1 + xd ** 10) - 0.1 * x))
        if i % 10 == 0:
            out.append(hist[-1])
    s = np.array(out[discard:])
    return torch.tensor((s - s.mean()) / s.std(), dtype=torch.float32)


class Reservoir(nn.Module):
    def __init__(self, n=300, radius=0.95, leak=0.35, density=0.05):
        super().__init__()
        w = torch.randn(n, n) * (torch.rand(n, n) < density)
        w = w * (radius / torch.linalg.eigvals(w).abs().max())
        self.w_rec = nn.Parameter(w, requires_grad=False)
        self.w_in = nn.Parameter(torch.empty(n, 1).uniform_(-0.6, 0.6), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(n).uniform_(-0.2, 0.2), requires_grad=False)
        self.leak = leak

    def forward(self, u):
        h = torch.zeros(self.bias.shape[0])
        states = []
        for x in u:
            pre = self.w_rec @ h + self.w_in[:, 0] * x + self.bias
            h = (1 - self.leak) * h + self.leak * torch.tanh(pre)
            states.append(h)
        return torch.stack(states)


class Readout(nn.Module):
    """Quadratic readout: states, squared states and the raw input."""

    def __init__(self, n):
        super().__init__()
        self.lin = nn.Linear(2 * n + 1, 1)
        nn.init.zeros_(self.lin.weight)
        nn.init.zeros_(self.lin.bias)

    def forward(self, h, u):
        return self.lin(torch.cat([h, h ** 2, u[:, None]], 1)).squeeze(1)


class ESN(nn.Module):
    def __init__(self, n=300):
        super().__init__()
        self.reservoir = Reservoir(n)
        self.readout = Readout(n)
        self.spare_head = nn.Linear(n, 1)      # reserved for the two-channel sensor, idle here

    def forward(self, h, u):
        return self.readout(h, u)


def log_cosh(err):
    return (err + nn.functional.softplus(-2 * err) - np.log(2)).mean()


def main():
    total = WASHOUT + N_TRAIN + N_TEST
    series = mackey_glass(total + STAGES[-1][0])
    esn = ESN()
    with torch.no_grad():
        states = esn.reservoir(series[:total])
    u = series[:total]
    tr = slice(WASHOUT, WASHOUT + N_TRAIN)
    te = slice(WASHOUT + N_TRAIN, total)
    model = torch.compile(esn, backend=BACKEND) if BACKEND else esn

    curve, done = [], 0
    for horizon, steps in STAGES:
        target = series[horizon:horizon + total]
        opt = torch.optim.Rprop(esn.readout.parameters(), lr=1e-3, step_sizes=(1e-7, 0.05))
        for _ in range(steps):
            loss = log_cosh(model(states[tr], u[tr]) - target[tr])
            opt.zero_grad()
            loss.backward()
            opt.step()
            curve.append(loss.item())
            done += 1
            if done % 30 == 0:
                print(f"{done:4d} horizon {horizon:2d} log-cosh {curve[-1]:.6f}")
    with torch.no_grad():
        pred = esn(states[te], u[te])
        nrmse = ((pred - target[te]).pow(2).mean().sqrt() / target[te].std()).item()
        naive = ((u[te] - target[te]).pow(2).mean().sqrt() / target[te].std()).item()
    print(f"horizon {horizon}: nrmse {nrmse:.4f} (persistence {naive:.3f})")
    print(json.dumps({"loss_first": curve[0], "loss_last": float(np.mean(curve[-10:])),
                      "metric_name": "nrmse", "metric": nrmse, "ok": nrmse < 0.3}))


if __name__ == "__main__":
    main()
