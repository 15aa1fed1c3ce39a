"""Next-hour electricity load (MW) from calendar and weather features with a GRU over the last hours."""
import json
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
rng = np.random.default_rng(SEED)

hours = np.arange(5200)
temp = 12 + 8 * np.sin(2 * np.pi * hours / 8760 * 3) + 4 * np.sin(2 * np.pi * (hours - 9) / 24) + rng.normal(0, 1.5, len(hours))
load = 11500 + 2400 * np.sin(2 * np.pi * (hours - 7) / 24) + 55 * (temp - 14) ** 2 - 1300 * ((hours // 24) % 7 >= 5) + rng.normal(0, 150, len(hours))
feat = np.stack([np.sin(2 * np.pi * hours / 24), np.cos(2 * np.pi * hours / 24), (temp - temp.mean()) / temp.std(),
                 ((hours // 24) % 7 >= 5) * 1.0], 1)
L = 12
X = torch.tensor(np.stack([feat[i - L:i + 1] for i in range(L, len(hours))]), dtype=torch.float32)
y = torch.tensor(load[L:], dtype=torch.float32)
scale = y[:4000].std() if VARIANT == "fixed" else torch.tensor(1.0)
shift = y[:4000].mean() if VARIANT == "fixed" else torch.tensor(0.0)
target = (y - shift) / scale


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 26, batch_first=True)
        self.head = nn.Sequential(nn.Linear(26, 26), nn.SiLU(), nn.Linear(26, 1))

    def forward(self, x):
        _, h = self.gru(x)
        return self.head(h[-1]).squeeze(-1)


model = Forecaster()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
losses = []
for step in range(360):
    idx = torch.randint(0, 4000, (50,))
    loss = nn.functional.mse_loss(net(X[idx]), target[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step % 60 == 0:
        print(f"step {step} loss {loss.item():.4g}")
with torch.no_grad():
    pred = net(X[4000:]) * scale + shift
mape = ((pred - y[4000:]).abs() / y[4000:]).mean().item()
print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-20:])), "metric_name": "mape", "metric": mape,
                  "ok": mape < 0.08}))
