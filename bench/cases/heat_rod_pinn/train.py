"""Physics-informed network for the heat equation on a rod: u_t = k u_xx, ends held at zero."""
import json
import math
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)


@dataclass
class Problem:
    k: float = 0.05
    t_end: float = 1.0
    n_colloc: int = 512
    n_init: int = 128
    n_wall: int = 64

    def initial(self, x):
        return np.sin(2 * np.pi * x) + 0.5 * np.sin(np.pi * x)

    def exact(self, x, t):
        a = np.exp(-self.k * (2 * np.pi) ** 2 * t) * np.sin(2 * np.pi * x)
        return a + 0.5 * np.exp(-self.k * np.pi ** 2 * t) * np.sin(np.pi * x)


class FieldNet(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.lift = nn.Linear(2, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth - 1))
        self.read = nn.Linear(width, 1)

    def forward(self, xt):
        h = torch.tanh(self.lift(2.0 * xt - 1.0))
        for layer in self.hidden:
            h = torch.tanh(layer(h))
        return self.read(h)


class Condition:
    """One term of the objective, with its own points and weight."""

    def __init__(self, name, weight):
        self.name, self.weight = name, weight

    def __call__(self, net):
        raise NotImplementedError


class Residual(Condition):
    def __init__(self, prob):
        super().__init__("pde", 1.0)
        self.prob = prob

    def __call__(self, net):
        xt = torch.rand(self.prob.n_colloc, 2, requires_grad=True)
        u = net(xt)
        g = torch.autograd.grad(u.sum(), xt, create_graph=True)[0]
        u_xx = torch.autograd.grad(g[:, 0].sum(), xt, create_graph=True)[0][:, 0]
        return (g[:, 1] - self.prob.k * u_xx).square().mean()


class InitialState(Condition):
    def __init__(self, prob):
        super().__init__("init", 20.0)
        x = np.random.rand(prob.n_init)
        self.points = torch.tensor(np.stack([x, np.zeros_like(x)], 1), dtype=torch.float32)
        self.values = torch.tensor(prob.initial(x), dtype=torch.float32)

    def __call__(self, net):
        u = net(self.points)
        if VARIANT == "fixed":
            u = u.reshape(-1)
        return (u - self.values).square().mean()


class Walls(Condition):
    def __init__(self, prob):
        super().__init__("wall", 5.0)
        t = np.random.rand(prob.n_wall) * prob.t_end
        side = np.random.randint(0, 2, prob.n_wall)
        self.points = torch.tensor(np.stack([side, t], 1), dtype=torch.float32)

    def __call__(self, net):
        return net(self.points).square().mean()


problem = Problem()
net = FieldNet()
field = torch.compile(net, backend=BACKEND) if BACKEND else net
terms = [Residual(problem), InitialState(problem), Walls(problem)]
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 600, gamma=0.5)

history = []
for it in range(1800):
    optimizer.zero_grad(set_to_none=True)
    parts = {c.name: c.weight * c(field) for c in terms}
    loss = sum(parts.values())
    loss.backward()
    optimizer.step()
    scheduler.step()
    history.append(loss.item())
    if it % 200 == 0:
        print(f"it {it:5d}  " + "  ".join(f"{k} {v.item():.3e}" for k, v in parts.items()))

gx, gt = np.meshgrid(np.linspace(0, 1, 41), np.linspace(0, 1, 41))
truth = problem.exact(gx, gt)
with torch.no_grad():
    pred = net(torch.tensor(np.stack([gx.ravel(), gt.ravel()], 1), dtype=torch.float32)).numpy().reshape(truth.shape)
err = float(np.linalg.norm(pred - truth) / np.linalg.norm(truth))
print(f"relative L2 error {err:.4f}")
fin = lambda v: round(v, 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(history[0]), "loss_last": fin(history[-1]), "metric_name": "relative_l2_error",
                  "metric": fin(err), "ok": bool(err < 0.15)}))
