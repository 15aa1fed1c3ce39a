import json
import math
import os

import numpy as np
import torch
import torch.nn as nn

SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
torch.manual_seed(SEED)
torch.set_num_threads(1)

# -lap u = f on the unit square, u = 0 on the edge, tiny physical amplitude
AMP = 2e-3


def exact(xy):
    return AMP * torch.sin(math.pi * xy[:, 0]) * torch.sin(2 * math.pi * xy[:, 1])


def forcing(xy):
    return 5 * math.pi ** 2 * exact(xy)


class ResidualTanh(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.a, self.b = nn.Linear(w, w), nn.Linear(w, w)

    def forward(self, x):
        return x + torch.tanh(self.b(torch.tanh(self.a(x))))


class Potential(nn.Module):
    """Trial function: the edge factor makes the boundary condition exact; starts as the zero function."""

    def __init__(self, w=32):
        super().__init__()
        self.lift = nn.Linear(2, w)
        self.core = nn.Sequential(ResidualTanh(w), ResidualTanh(w))
        self.readout = nn.Linear(w, 1, bias=False)
        nn.init.zeros_(self.readout.weight)

    def forward(self, xy):
        edge = 16 * (xy * (1 - xy)).prod(1)
        return AMP * edge * self.readout(self.core(torch.tanh(self.lift(2 * xy - 1)))).squeeze(1)


def energy(net, xy):
    """Monte-Carlo Dirichlet energy  1/2 |grad u|^2 - f u."""
    xy = xy.requires_grad_(True)
    u = net(xy)
    du, = torch.autograd.grad(u.sum(), xy, create_graph=True)
    return (0.5 * du.pow(2).sum(1) - forcing(xy.detach()) * u).mean()


def relative_error(net):
    g = torch.linspace(0, 1, 41)
    xy = torch.cartesian_prod(g, g)
    with torch.no_grad():
        return ((net(xy) - exact(xy)).norm() / exact(xy).norm()).item()


net = Potential()
# double backward is not supported by the compiled graph: compile the forward used for reporting only
report = torch.compile(net, backend=COMPILE) if COMPILE else net
trace = []
adam = torch.optim.Adam(net.parameters(), lr=4e-3, eps=1e-16)
for it in range(220):
    loss = energy(net, torch.rand(512, 2))
    adam.zero_grad()
    loss.backward()
    adam.step()
    trace.append(loss.item())
    if it % 40 == 0:
        print(f"adam {it:3d} energy {trace[-1]: .4e} relative error {relative_error(report):.4f}")

# polish on a fixed quasi-random set; line search calls the closure several times per step
sobol = torch.quasirandom.SobolEngine(2, scramble=True, seed=SEED).draw(2048)
lbfgs = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=8, tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe")
SCALE = 1.0 / AMP ** 2


def closure():
    lbfgs.zero_grad()
    e = energy(net, sobol.clone()) * SCALE
    e.backward()
    return e


for it in range(12):
    e = lbfgs.step(closure).item()
    trace.append(e / SCALE)
    if it % 4 == 0:
        print(f"lbfgs {it:2d} energy {trace[-1]: .4e} (scaled {e:.3f}) relative error {relative_error(report):.4f}")

err = relative_error(report)
best = -0.5 * 5 * math.pi ** 2 / 4 * AMP ** 2
print(f"energy reached {trace[-1]:.4e}, theory {best:.4e}")
print(json.dumps({"loss_first": trace[0], "loss_last": trace[-1], "metric_name": "relative_l2_error", "metric": err, "ok": err < 0.05}))
