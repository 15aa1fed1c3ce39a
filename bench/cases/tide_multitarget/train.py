"""Dense encoder-decoder forecaster for several target series at once, with a future calendar covariate."""
import json
import math
import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    lookback: int = 48
    horizon: int = 12
    targets: tuple = ("load", "solar")
    hidden: int = 64
    decoder_dim: int = 8
    epochs: int = 8
    batch_size: int = 64
    lr: float = 2e-3
    seed: int = int(os.environ.get("CASE_SEED", "0"))
    keep_history: bool = os.environ.get("CASE_VARIANT", "faulty") == "fixed"


cfg = Config()
torch.set_num_threads(1)
torch.manual_seed(cfg.seed)


def hourly(n, rng):
    t = np.arange(n)
    cloud = np.convolve(rng.normal(size=n + 24), np.ones(25) / 5, "valid")
    sun = np.maximum(0, np.sin(2 * np.pi * (t - 6) / 24))
    solar = sun * (2 - 0.8 * np.tanh(cloud))
    load = 1.5 * np.sin(2 * np.pi * t / 24 + 0.6) + 0.7 * (t // 24 % 7 < 5) - 0.4 * solar
    y = np.stack([load, solar], 1) + 0.08 * rng.normal(size=(n, 2))
    cal = np.stack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24), t // 24 % 7 < 5], 1)
    return ((y - y.mean(0)) / y.std(0)).astype(np.float32), cal.astype(np.float32)


class Windows(Dataset):
    def __init__(self, y, cal):
        self.y, self.cal = torch.from_numpy(y), torch.from_numpy(cal)

    def __len__(self):
        return len(self.y) - cfg.lookback - cfg.horizon

    def __getitem__(self, i):
        m = i + cfg.lookback
        e = m + cfg.horizon
        return {"past": self.y[i:m], "past_cov": self.cal[i:m], "future_cov": self.cal[m:e]}, self.y[m:e]


class ResidualBlock(nn.Module):
    def __init__(self, d_in, d_out, d_hidden):
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(d_in, d_hidden), nn.ReLU(), nn.Linear(d_hidden, d_out), nn.Dropout(0.05))
        self.skip = nn.Linear(d_in, d_out)

    def forward(self, x):
        return self.dense(x) + self.skip(x)


class TideModule(nn.Module):
    def __init__(self, n_out, n_cov):
        super().__init__()
        flat = cfg.lookback * (n_out + n_cov) + cfg.horizon * n_cov
        self.n_out = n_out
        self.encoder = ResidualBlock(flat, cfg.hidden, cfg.hidden)
        self.decoder = ResidualBlock(cfg.hidden, cfg.horizon * cfg.decoder_dim, cfg.hidden)
        self.temporal_decoder = ResidualBlock(cfg.decoder_dim + n_cov, n_out, 16)
        self.lookback_skip = nn.Linear(cfg.lookback, cfg.horizon)

    def forward(self, past, past_cov, future_cov):
        flat = torch.cat([past.flatten(1), past_cov.flatten(1), future_cov.flatten(1)], 1)
        h = self.decoder(self.encoder(flat)).view(len(past), cfg.horizon, -1)
        out = self.temporal_decoder(torch.cat([h, future_cov], 2))
        return out + self.lookback_skip(past.transpose(1, 2)).transpose(1, 2)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = TideModule(len(cfg.targets), 3)

    def forward(self, x):
        prediction = self.model(x["past"], x["past_cov"], x["future_cov"])
        # one tensor per target, (batch, horizon)
        prediction = list(prediction.permute(2, 0, 1))
        if cfg.keep_history:
            prediction = [p.clone() for p in prediction]
        else:
            prediction = [p.clone().detach().requires_grad_(True) for p in prediction]
        return dict(zip(cfg.targets, prediction))


class Trainer:
    def __init__(self, net):
        self.net = net
        backend = os.environ.get("CASE_COMPILE", "")
        self.call = torch.compile(net, backend=backend) if backend else net
        self.opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, cfg.epochs)
        self.losses = []

    def loss(self, out, y):
        return sum((out[name] - y[..., k]).abs().mean() for k, name in enumerate(cfg.targets)) / len(cfg.targets)

    def fit(self, loader, val):
        for epoch in range(cfg.epochs):
            self.net.train()
            for x, y in loader:
                self.opt.zero_grad()
                loss = self.loss(self.call(x), y)
                loss.backward()
                self.opt.step()
                self.losses.append(loss.item())
            self.sched.step()
            print(f"epoch {epoch}: train_loss {np.mean(self.losses[-len(loader):]):.4f} val_loss {self.evaluate(val):.4f}")

    @torch.no_grad()
    def evaluate(self, loader):
        self.net.eval()
        parts = [self.loss(self.call(x), y).item() for x, y in loader]
        return float(np.mean(parts))


rng = np.random.default_rng(cfg.seed)
y, cal = hourly(3600, rng)
train = DataLoader(Windows(y[:2900], cal[:2900]), cfg.batch_size, shuffle=True)
val = DataLoader(Windows(y[2900:], cal[2900:]), 256)
trainer = Trainer(Forecaster())
trainer.fit(train, val)
mae = trainer.evaluate(val)
f = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": f(trainer.losses[0]), "loss_last": f(trainer.losses[-1]), "metric_name": "val_mae",
                  "metric": f(mae), "ok": mae < 0.4}))
