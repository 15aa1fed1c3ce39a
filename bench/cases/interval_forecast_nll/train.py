"""Load forecasting with a predicted mean and a predicted uncertainty for each hour."""
import json
import math
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)


def hours(n, seed):
    r = np.random.default_rng(seed)
    hour = r.uniform(0, 24, n)
    temp = r.normal(12, 7, n)
    wind = r.gamma(2.0, 3.0, n)
    phase = 2 * np.pi * hour / 24
    spread = np.exp(-2.2 + 1.3 * np.sin(phase) + 0.08 * (wind - 6))
    load = np.sin(phase - 1) + 0.5 * np.cos(2 * phase) - 0.05 * (temp - 12) + spread * r.normal(size=n)
    feats = np.stack([np.sin(phase), np.cos(phase), (temp - 12) / 7, (wind - 6) / 4], 1)
    return torch.tensor(feats, dtype=torch.float32), torch.tensor(load, dtype=torch.float32)


class Forecaster(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.mean = nn.Linear(width, 1)
        self.log_var = nn.Linear(width, 1)

    def forward(self, x):
        h = self.trunk(x)
        if VARIANT == "fixed":
            return self.mean(h).squeeze(-1), self.log_var(h).squeeze(-1)
        return self.mean(h).squeeze(-1), self.log_var(h)


def gaussian_nll(y, mean, log_var):
    log_var = log_var.clamp(-9, 6)
    return (0.5 * (log_var + (y - mean) ** 2 / log_var.exp())).mean()


x, y = hours(4000, SEED + 1)
xt, yt = hours(1000, SEED + 2)
net = Forecaster()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
trace = []
for epoch in range(6):
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, drop_last=True):
        loss = gaussian_nll(yb, *model(xb))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        trace.append(loss.item())
    print(f"epoch {epoch} nll {np.mean(trace[-60:]):.4f}")

with torch.no_grad():
    m, lv = net(xt)
    lv = lv.reshape(-1)
    rmse = (yt - m).pow(2).mean().sqrt().item()
    nll = gaussian_nll(yt, m, lv).item()
print(f"test rmse {rmse:.3f}, predicted sigma from {(0.5 * lv.min()).exp():.3f} to {(0.5 * lv.max()).exp():.3f}, test nll {nll:.3f}")
f = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": trace[0], "loss_last": float(np.mean(trace[-20:])), "metric_name": "test_nll", "metric": f(nll),
                  "ok": bool(nll < -1.15)}))
