"""Physics-informed network for a Helmholtz problem on the unit square, quasi-Newton fit in rounds."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_default_dtype(torch.float64)


class Sine(nn.Module):
    def __init__(self, w0=1.0):
        super().__init__()
        self.w0 = w0

    def forward(self, x):
        return torch.sin(self.w0 * x)


class Field(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.seq = nn.Sequential(nn.Linear(2, width), Sine(3.0), nn.Linear(width, width), Sine(), nn.Linear(width, width), Sine(), nn.Linear(width, 1))
        for m in self.seq:
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, p):
        return self.seq(p)


class HelmholtzProblem:
    """u_xx + u_yy + k^2 u = q on the unit square, u = 0 on three sides, u_y = g on the side y = 1."""
    k, a, b = 2.0, math.pi, 2 * math.pi

    def __init__(self, n_in=400, n_edge=40):
        self.inside = torch.rand(n_in, 2).requires_grad_(True)
        s = torch.rand(n_edge, 1)
        z, o = torch.zeros_like(s), torch.ones_like(s)
        self.dirichlet = torch.cat([torch.cat([s, z], 1), torch.cat([z, s], 1), torch.cat([o, s], 1)])
        self.neumann = torch.cat([s, o], 1).requires_grad_(True)

    def exact(self, p):
        return (torch.sin(self.a * p[:, :1]) * torch.sin(self.b * p[:, 1:])).detach()

    def terms(self, net):
        u = net(self.inside)
        du, = torch.autograd.grad(u.sum(), self.inside, create_graph=True)
        uxx = torch.autograd.grad(du[:, 0].sum(), self.inside, create_graph=True)[0][:, :1]
        uyy = torch.autograd.grad(du[:, 1].sum(), self.inside, create_graph=True)[0][:, 1:]
        q = (self.k ** 2 - self.a ** 2 - self.b ** 2) * self.exact(self.inside)
        dn, = torch.autograd.grad(net(self.neumann).sum(), self.neumann, create_graph=True)
        g = self.b * torch.sin(self.a * self.neumann[:, :1].detach())
        return {"pde": (uxx + uyy + self.k ** 2 * u - q).pow(2).mean(),
                "wall": net(self.dirichlet).pow(2).mean(),
                "flux": (dn[:, 1:] - g).pow(2).mean()}


WEIGHTS = {"pde": 1.0, "wall": 500.0, "flux": 10.0}


def main():
    torch.set_num_threads(1)
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    problem, field = HelmholtzProblem(), Field()
    net = torch.compile(field, backend=BACKEND) if BACKEND else field
    opt = torch.optim.LBFGS(field.parameters(), lr=1.0, max_iter=40, history_size=30, line_search_fn="strong_wolfe",
                            tolerance_grad=0.2, tolerance_change=1e-10)
    trace, parts = [], {}

    def closure():
        opt.zero_grad()
        parts.update(problem.terms(net))
        total = sum(WEIGHTS[k] * v for k, v in parts.items())
        total.backward()
        trace.append(total.item())
        return total

    for rnd in range(16):
        opt.step(closure)
        print(f"round {rnd:2d} evaluations {len(trace):4d} total {trace[-1]:.3e} " + " ".join(f"{k} {v.item():.2e}" for k, v in parts.items()))
    g = torch.linspace(0, 1, 41)
    grid = torch.cartesian_prod(g, g)
    with torch.no_grad():
        err = ((net(grid) - problem.exact(grid)).norm() / problem.exact(grid).norm()).item()
    print(f"relative L2 error {err:.4f}")
    f = lambda v: round(float(v), 6) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(trace[0]), "loss_last": f(trace[-1]), "metric_name": "relative_l2_error",
                      "metric": f(err), "ok": bool(err < 0.03)}))


if __name__ == "__main__":
    main()
