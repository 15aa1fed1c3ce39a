"""Short-term forecast of a vehicle counter with a small dilated convolution network."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

HISTORY, HORIZON = 36, 4


def load_counter(days):
    t = np.arange(days * 48)
    daily = 40 + 28 * np.sin(2 * np.pi * t / 48 - 1.9) + 10 * np.sin(4 * np.pi * t / 48)
    weekend = np.where((t // 48) % 7 >= 5, 0.6, 1.0)
    drift = np.zeros(len(t))
    for i in range(1, len(t)):
        drift[i] = 0.95 * drift[i - 1] + rng.normal(0, 1.2)
    series = np.clip(daily * weekend + drift, 0, None)
    stuck = rng.choice(np.arange(200, days * 34), 3, replace=False)
    series[stuck] = 65535
    return series


def windows(series):
    w = np.lib.stride_tricks.sliding_window_view(series, HISTORY + HORIZON)
    return torch.tensor(w.copy(), dtype=torch.float32)


series = load_counter(56)
split = 56 * 36
train, test = windows(series[:split]), windows(series[split:])
if VARIANT == "fixed":
    train = train[(train < 1000).all(1)]
MEAN, STD = float(np.median(series)), float(np.subtract(*np.percentile(series, [84, 16])) / 2)


class CausalBlock(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(ch, ch, 3, dilation=dilation)

    def forward(self, x):
        return x + torch.relu(self.conv(nn.functional.pad(x, (self.pad, 0))))


class TCN(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.stem = nn.Conv1d(1, ch, 1)
        self.blocks = nn.Sequential(*[CausalBlock(ch, 2 ** i) for i in range(4)])
        self.readout = nn.Linear(ch, HORIZON)

    def forward(self, x):
        return self.readout(self.blocks(self.stem(x.unsqueeze(1)))[..., -1])


def split_xy(batch):
    z = (batch - MEAN) / STD
    return z[:, :HISTORY], z[:, HISTORY:]


model = TCN()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
mse = nn.MSELoss()

losses, epoch = [], 0
while len(losses) < 300:
    for idx in torch.randperm(len(train)).split(32):
        x, y = split_xy(train[idx])
        loss = mse(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) % 30 == 0:
            print(f"epoch {epoch} it {len(losses)} mse {losses[-1]:.4f}")
        if len(losses) == 300:
            break
    epoch += 1

with torch.no_grad():
    x, y = split_xy(test)
    mae = (net(x) - y).abs().mean().item() * STD
fin = lambda v: v if math.isfinite(v) else None
print("test MAE in vehicles:", round(mae, 3))
print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(losses[-1]), "metric_name": "test_mae",
                  "metric": fin(mae), "ok": mae < 4.5}))
