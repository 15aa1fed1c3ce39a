"""Neural ODE for a damped pendulum: learn the vector field from noisy trajectories, growing the horizon as we go."""
import os, json, math
import numpy as np
import torch
import torch.nn as nn

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
rng = np.random.RandomState(SEED + 1)
torch.set_num_threads(1)

DT, LENGTH = 0.1, 60


def true_field(s):
    return np.stack([s[:, 1], -2.0 * np.sin(s[:, 0]) - 0.15 * s[:, 1]], 1)


def rollout_np(s, n):
    out = [s]
    for _ in range(n):
        for _ in range(4):
            h = DT / 4
            k1 = true_field(s); k2 = true_field(s + h / 2 * k1)
            k3 = true_field(s + h / 2 * k2); k4 = true_field(s + h * k3)
            s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        out.append(s)
    return np.stack(out, 1).astype(np.float32)


class Field(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
        # start from "nothing moves"
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, s):
        return self.net(s)


def odeint(f, s, n, h=DT):
    path = []
    for _ in range(n):
        k1 = f(s)
        k2 = f(s + 0.5 * h * k1)
        k3 = f(s + 0.5 * h * k2)
        k4 = f(s + h * k3)
        s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(s)
    return torch.stack(path, 1)


start = np.stack([rng.uniform(-2.2, 2.2, 40), rng.uniform(-1.5, 1.5, 40)], 1)
clean = rollout_np(start, LENGTH)
train = torch.from_numpy(clean[:30] + 0.01 * rng.randn(30, LENGTH + 1, 2).astype(np.float32))
test = torch.from_numpy(clean[30:])

field = Field()
f = torch.compile(field, backend=COMPILE) if COMPILE else field
opt = torch.optim.Adam(field.parameters(), lr=1e-2)
stages = [(2, 120), (6, 100), (15, 60)]            # (horizon, iterations)
total = sum(n for _, n in stages)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-2, total_steps=total, pct_start=0.2)
losses, it = [], 0
for horizon, iters in stages:
    for _ in range(iters):
        who = torch.randint(0, 30, (64,))
        when = torch.randint(0, LENGTH - horizon, (64,))
        s0 = train[who, when]
        ref = torch.stack([train[who, when + k] for k in range(1, horizon + 1)], 1)
        loss = (odeint(f, s0, horizon) - ref).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(field.parameters(), 1.0)
        opt.step(); sched.step()
        losses.append(loss.item())
        it += 1
        if it % 40 == 0:
            print(f"it {it} horizon {horizon} loss {np.mean(losses[-20:]):.2e} lr {sched.get_last_lr()[0]:.1e}")

with torch.no_grad():
    pred = odeint(field, test[:, 0], LENGTH)
    rel = ((pred - test[:, 1:]).norm() / test[:, 1:].norm()).item()
fin = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(np.mean(losses[-10:])),
                  "metric_name": "relative_rollout_error", "metric": fin(rel), "ok": bool(rel < 0.15)}))
