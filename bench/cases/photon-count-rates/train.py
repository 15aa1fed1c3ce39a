import json
import os

import numpy as np
import torch
import torch.nn as nn

SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)


class RandomFourier(nn.Module):
    """Fixed random features, never trained (kernel approximation)."""

    def __init__(self, d_in, n, scale):
        super().__init__()
        self.proj = nn.Linear(d_in, n)
        nn.init.normal_(self.proj.weight, std=scale)
        nn.init.uniform_(self.proj.bias, 0, 2 * np.pi)
        for p in self.proj.parameters():
            p.requires_grad_(False)

    def forward(self, x):
        return torch.cos(self.proj(x)) * (2.0 / self.proj.out_features) ** 0.5 * 4


class RateModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = RandomFourier(2, 192, 4.0)
        self.mlp = nn.Sequential(nn.Linear(192, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU())
        self.log_rate = nn.Linear(64, 1)
        self.background = nn.Linear(64, 1)   # only used by the calibration tool

    def forward(self, xy):
        return self.log_rate(self.mlp(self.lift(xy))).squeeze(-1)


def sky(xy):
    """True expected photon counts per pixel."""
    r = 3.0
    for cx, cy, amp, w in [(0.3, 0.35, 90, 0.08), (0.7, 0.6, 160, 0.12), (0.45, 0.8, 60, 0.05)]:
        r = r + amp * np.exp(-((xy[:, 0] - cx) ** 2 + (xy[:, 1] - cy) ** 2) / (2 * w * w))
    return r


def poisson_deviance_sum(log_rate, counts):
    # additive constants dropped, so the value is negative for bright pixels
    return (log_rate.exp() - counts * log_rate).sum()


rng = np.random.default_rng(SEED)
grid = np.stack(np.meshgrid(np.linspace(0, 1, 64), np.linspace(0, 1, 64)), -1).reshape(-1, 2)
true_rate = sky(grid)
counts = rng.poisson(true_rate)
X = torch.tensor(grid, dtype=torch.float32)
C = torch.tensor(counts, dtype=torch.float32)
LAM = torch.tensor(true_rate, dtype=torch.float32)

net = RateModel()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
optimizer = torch.optim.NAdam([p for p in net.parameters() if p.requires_grad], lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=50, T_mult=2)

curve, norms = [], []
for it in range(350):
    idx = torch.randint(0, len(X), (1024,))
    loss = poisson_deviance_sum(model(X[idx]), C[idx])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), 1.0)))
    optimizer.step()
    scheduler.step()
    curve.append(loss.item())
    if it % 50 == 0:
        print(f"it {it:3d} objective {loss.item():12.1f} grad norm {norms[-1]:10.1f} "
              f"lr {scheduler.get_last_lr()[0]:.5f}")

net.eval()
with torch.no_grad():
    rate = net(X).exp()
rel = ((rate - LAM).abs() / LAM.clamp(min=5)).mean().item()
print(f"mean relative error of the recovered rate map {rel:.3f}")
print(json.dumps({"loss_first": curve[0], "loss_last": float(np.mean(curve[-10:])),
                  "metric_name": "relative_rate_error", "metric": rel, "ok": rel < 0.25}))
