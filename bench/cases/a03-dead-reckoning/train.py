"""Position from wheel speed and heading change with a small recurrent net (all time steps supervised)."""
import json
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(seed)
torch.set_num_threads(1)


class Rollout(nn.Module):
    """linear-rectified recurrent layer, identity start, with a low dimensional read-out"""

    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.inp = nn.Linear(n_in, n_hidden)
        self.rec = nn.Linear(n_hidden, n_hidden, bias=False)
        nn.init.eye_(self.rec.weight)
        nn.init.normal_(self.inp.weight, std=0.05)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.rec.in_features)
        u = self.inp(x)
        states = []
        for t in range(x.shape[1]):
            h = F.relu(u[:, t] + self.rec(h))
            states.append(h)
        return torch.stack(states, 1)


class Odometer(nn.Module):
    def __init__(self, n_in=3, n_hidden=48, n_out=2):
        super().__init__()
        self.rollout = Rollout(n_in, n_hidden)
        self.readout = nn.Linear(n_hidden, n_out)

    def forward(self, x):
        return self.readout(self.rollout(x))


def drive(n, length, gen):
    """speed with slow changes, small heading wander; position is the running sum"""
    speed = 0.6 + 0.4 * torch.rand(n, 1, generator=gen) + 0.1 * torch.randn(n, length, generator=gen)
    heading = 0.08 * torch.randn(n, length, generator=gen).cumsum(1)
    heading = heading + 0.8 * torch.randn(n, 1, generator=gen)
    step = torch.stack([speed * heading.cos(), speed * heading.sin()], -1)
    feats = torch.stack([speed, step[..., 0], step[..., 1]], -1)
    feats = feats + 0.02 * torch.randn(feats.shape, generator=gen)
    return feats, step.cumsum(1) / 10.0


gen = torch.Generator().manual_seed(100 + seed)
LENGTH, STEPS, BATCH = 60, 250, 24
x_val, y_val = drive(200, LENGTH, gen)

model = Odometer()
net = torch.compile(model, backend=backend) if backend else model
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=STEPS)

losses = []
for step in range(STEPS):
    x, y = drive(BATCH, LENGTH, gen)
    loss = F.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    if variant == "fixed":
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    losses.append(loss.item())
    if step % 25 == 0:
        print(f"step {step} mse {loss.item():.4f}")

with torch.no_grad():
    pred = model(x_val)
    r2 = 1 - ((pred - y_val).pow(2).sum() / (y_val - y_val.mean((0, 1))).pow(2).sum()).item()
last = sum(losses[-10:]) / 10
clean = lambda v: v if math.isfinite(v) else None
print(f"first {losses[0]:.3f} last {last:.3f}")
print(json.dumps({"loss_first": clean(losses[0]), "loss_last": clean(last), "metric_name": "val_r2",
                  "metric": clean(r2), "ok": bool(math.isfinite(r2) and r2 > 0.9)}))
