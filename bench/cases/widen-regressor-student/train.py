import json
import os

import numpy as np
import torch
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)

DEV_N, TRAIN_N, BATCH = 1000, 4000, 128


def reflectance(x):
    """Two-angle surface response, a few lobes."""
    a, b = x[:, :1], x[:, 1:]
    return torch.sin(2.2 * a) * torch.cos(1.7 * b) + 0.6 * torch.exp(-3 * ((a - 0.6) ** 2 + (b + 0.5) ** 2)) - 0.4 * a * b


class Trunk(nn.Module):
    def __init__(self, widths):
        super().__init__()
        dims = [2] + list(widths)
        self.hidden = nn.ModuleList(nn.Linear(i, o) for i, o in zip(dims[:-1], dims[1:]))
        self.out = nn.Linear(dims[-1], 1)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.out(x)

    def layers(self):
        return list(self.hidden) + [self.out]


@torch.no_grad()
def grow(teacher, factor, jitter):
    """Function-preserving widening: every hidden unit becomes `factor` units, fan-out is shared between them."""
    widths = [l.out_features * factor for l in teacher.hidden]
    student = Trunk(widths)
    mapping = torch.arange(2)
    share = 1.0
    for src, dst in zip(teacher.layers(), student.layers()):
        w = src.weight[:, mapping] * share
        last = src is teacher.out
        rows = torch.arange(1) if last else torch.arange(src.out_features).repeat(factor)
        dst.weight.copy_(w[rows])
        dst.bias.copy_(src.bias[rows])
        if jitter > 0:
            dst.weight.add_(torch.randn_like(dst.weight) * jitter * dst.weight.std())
        mapping, share = rows, 1.0 / factor
    return student


def evaluate(model, x, y):
    with torch.no_grad():
        return (1 - ((model(x) - y) ** 2).mean() / y.var()).item()


def fit(model, data, steps, lr, log, tag):
    x, y = data
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, lr, total_steps=steps, pct_start=0.1)
    loss_fn = nn.MSELoss()
    for step in range(steps):
        idx = torch.randint(0, len(x), (BATCH,))
        loss = loss_fn(model(x[idx]), y[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        log.append(loss.item())
        if step % 50 == 0:
            print(f"[{tag}] step {step:3d} mse {np.mean(log[-20:]):.5f}")


x = torch.rand(TRAIN_N, 2) * 4 - 2
y = reflectance(x)
xv = torch.rand(DEV_N, 2) * 4 - 2
yv = reflectance(xv)

teacher = Trunk([3, 3])
history = []
fit(teacher, (x, y), 100, 2e-2, history, "teacher")
print("teacher R2", round(evaluate(teacher, xv, yv), 4))

student = grow(teacher, factor=16, jitter=0.5 if VARIANT == "fixed" else 0.0)
print("student starts at R2", round(evaluate(student, xv, yv), 4), "parameters", sum(p.numel() for p in student.parameters()))
if COMPILE:
    student = torch.compile(student, backend=COMPILE)
fit(student, (x, y), 300, 3e-2, history, "student")
r2 = evaluate(student, xv, yv)
print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])), "metric_name": "r2", "metric": r2, "ok": bool(r2 > 0.93)}))
