# Next-hour substation load forecast. GRU encoder + calendar features, robust (log-cosh) objective.
import json
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

seed = int(os.getenv("CASE_SEED", 0))
variant = os.getenv("CASE_VARIANT", "faulty")
backend = os.getenv("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(seed)
gen = np.random.default_rng(seed)

cfg = dict(window=36, hidden=32, batch=64, epochs=7, lr=4e-3, clip=1.0)


def make_series(n_hours=2600):
    t = np.arange(n_hours)
    daily = np.sin(2 * np.pi * t / 24 - 1.1) + 0.45 * np.sin(4 * np.pi * t / 24 + 0.4)
    weekend = ((t // 24) % 7 >= 5).astype(float)
    temp = np.zeros(n_hours)
    for k in range(1, n_hours):
        temp[k] = 0.97 * temp[k - 1] + gen.normal(0, 0.2)
    load = 310 + 60 * daily * (1 - 0.4 * weekend) - 35 * weekend + 18 * temp + gen.normal(0, 5, n_hours)
    cal = np.stack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24), weekend], 1)
    return load.astype(np.float32), cal.astype(np.float32)


class LoadWindows(Dataset):
    def __init__(self, load, cal, lo, hi, stats):
        self.z = (load - stats[0]) / stats[1]
        self.cal = cal
        self.starts = np.arange(lo, hi - cfg["window"] - 1)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        e = s + cfg["window"]
        past = np.concatenate([self.z[s:e, None], self.cal[s:e]], 1)
        return torch.from_numpy(past), torch.from_numpy(self.cal[e]), torch.tensor(self.z[e])


class GRUForecaster(nn.Module):
    def __init__(self, n_in=4, n_cal=3, hidden=32):
        super().__init__()
        self.encoder = nn.GRU(n_in, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.readout = nn.Sequential(nn.Linear(hidden + n_cal, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, past, cal_next):
        _, h = self.encoder(past)
        return self.readout(torch.cat([self.norm(h[-1]), cal_next], dim=-1))


class LogCosh(nn.Module):
    """log(cosh(e)) written the overflow-safe way"""

    def forward(self, forecast, actual):
        err = forecast - actual
        return (err + nn.functional.softplus(-2.0 * err) - np.log(2.0)).mean()


class Forecaster:
    def __init__(self):
        self.net = GRUForecaster(hidden=cfg["hidden"])
        if backend:
            self.net = torch.compile(self.net, backend=backend)
        self.loss = LogCosh()
        self.optim = torch.optim.AdamW(self.net.parameters(), lr=cfg["lr"], weight_decay=1e-3)
        self.curve = []

    def fit_epoch(self, loader):
        self.net.train()
        for past, cal, y in loader:
            self.optim.zero_grad()
            yhat = self.net(past, cal)
            if variant == "fixed":
                yhat = yhat.squeeze(-1)
            loss = self.loss(yhat, y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), cfg["clip"])
            self.optim.step()
            self.curve.append(loss.item())

    @torch.no_grad()
    def predict(self, loader):
        self.net.eval()
        out, truth, last = [], [], []
        for past, cal, y in loader:
            out.append(self.net(past, cal).reshape(-1))
            truth.append(y)
            last.append(past[:, -1, 0])
        return torch.cat(out), torch.cat(truth), torch.cat(last)


load, cal = make_series()
split = 2100
stats = (load[:split].mean(), load[:split].std())
train_dl = DataLoader(LoadWindows(load, cal, 0, split, stats), batch_size=cfg["batch"], shuffle=True)
test_dl = DataLoader(LoadWindows(load, cal, split, len(load), stats), batch_size=256)

f = Forecaster()
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(f.optim, factor=0.5, patience=1)
for ep in range(cfg["epochs"]):
    f.fit_epoch(train_dl)
    yhat, y, last = f.predict(test_dl)
    mae = (yhat - y).abs().mean().item() * float(stats[1])
    plateau.step(np.mean(f.curve[-len(train_dl):]))
    print(f"[{ep + 1}/{cfg['epochs']}] train {np.mean(f.curve[-len(train_dl):]):.4f}  test MAE {mae:.2f} MW")

persistence = (last - y).abs().mean().item() * float(stats[1])
print(f"persistence MAE {persistence:.2f} MW")
print(json.dumps({"loss_first": f.curve[0], "loss_last": float(np.mean(f.curve[-20:])),
                  "metric_name": "mae_over_persistence", "metric": mae / persistence,
                  "ok": bool(mae < 0.75 * persistence)}))
