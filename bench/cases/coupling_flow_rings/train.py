"""Affine coupling flow with activation normalisation, density of a noisy double ring in the plane (+2 nuisance axes)."""
import json
import math
import os
import sys

import torch
import torch.nn as nn
from sklearn.datasets import make_circles

SEED = int(os.environ.get("CASE_SEED", "0"))
FIXED = os.environ.get("CASE_VARIANT", "faulty") == "fixed"
BACKEND = os.environ.get("CASE_COMPILE", "")

OPTIONS = dict(
    n_dims=4, n_steps=6, hidden=48,
    lr=2e-3 if FIXED else 1e-1, betas=(0.9, 0.99),
    niter=300, batch=128, max_nans=40,
)


class ActNorm(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dims))
        self.logs = nn.Parameter(torch.zeros(dims))

    def forward(self, z, logdet):
        return (z + self.bias) * self.logs.exp(), logdet + self.logs.sum()


class AffineCoupling(nn.Module):
    def __init__(self, dims, hidden):
        super().__init__()
        self.half = dims // 2
        self.net = nn.Sequential(nn.Linear(self.half, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                 nn.Linear(hidden, 2 * self.half))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, z, logdet):
        a, b = z[:, :self.half], z[:, self.half:]
        shift, log_scale = self.net(a).chunk(2, dim=1)
        log_scale = 2.0 * torch.tanh(0.5 * log_scale)
        b = (b + shift) * log_scale.exp()
        return torch.cat([b, a], dim=1), logdet + log_scale.sum(1)


class Flow(nn.Module):
    def __init__(self, dims, steps, hidden):
        super().__init__()
        self.norms = nn.ModuleList([ActNorm(dims) for _ in range(steps)])
        self.couplings = nn.ModuleList([AffineCoupling(dims, hidden) for _ in range(steps)])
        self.register_buffer("perm", torch.tensor([0, 2, 1, 3]))

    def forward(self, x):
        z, logdet = x, x.new_zeros(len(x))
        for norm, coupling in zip(self.norms, self.couplings):
            z, logdet = coupling(*norm(z[:, self.perm], logdet))
        log_p = -0.5 * (z ** 2).sum(1) - 0.5 * z.size(1) * math.log(2 * math.pi)
        return log_p + logdet


def sample(n, seed):
    rings, which = make_circles(n, noise=0.06, factor=0.5, random_state=seed)
    g = torch.Generator().manual_seed(seed)
    rings = torch.tensor(rings, dtype=torch.float32) * 1.5
    extra = torch.randn(n, 2, generator=g) * 0.3 + rings.abs()
    return torch.cat([rings, extra], 1)


class Model:
    def __init__(self, opt):
        self.opt = opt
        self.flow = Flow(opt["n_dims"], opt["n_steps"], opt["hidden"])
        self.call = torch.compile(self.flow, backend=BACKEND) if BACKEND else self.flow
        self.optimizer = torch.optim.Adam(self.flow.parameters(), lr=opt["lr"], betas=opt["betas"])
        self.nans = 0

    def optimize_parameters(self, x):
        self.optimizer.zero_grad()
        nll = -self.call(x).mean()
        if not torch.isfinite(nll):
            self.nans += 1
            return float("nan")
        nll.backward()
        self.optimizer.step()
        return nll.item()

    @torch.no_grad()
    def nll(self, x):
        return -self.flow(x).mean().item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    train, val = sample(6000, SEED), sample(1500, SEED + 1000)
    model, hist = Model(OPTIONS), []
    for it in range(1, OPTIONS["niter"] + 1):
        hist.append(model.optimize_parameters(train[torch.randint(len(train), (OPTIONS["batch"],))]))
        if it % 40 == 0 or it in (5, 10, 20):
            print(f"<iter {it:4d}, nll {hist[-1]:.4g}, nans {model.nans}>")
        if model.nans >= OPTIONS["max_nans"]:
            print("too many NaNs, stopping")
            break
    v = model.nll(val)
    print(f"validation nll {v:.4g} nats")
    c = lambda q: q if math.isfinite(q) else None
    print(json.dumps({"loss_first": c(hist[0]), "loss_last": c(hist[-1]), "metric_name": "val_nll", "metric": c(v), "ok": v < 3.0}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
