"""Alarm net for bearings: dilated gated 1-d convolutions over a vibration window, one alarm score per window."""
import json
import math
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    length: int = 160
    width: int = 16
    dilations: tuple = (1, 2, 4, 8)
    final_act: str = "softmax" if os.environ.get("CASE_VARIANT", "faulty") == "faulty" else "sigmoid"
    lr: float = 4e-3
    epochs: int = 5
    batch_size: int = 40
    seed: int = int(os.environ.get("CASE_SEED", "0"))
    backend: str = os.environ.get("CASE_COMPILE", "")


ACTIVATIONS = {"sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "softmax": lambda: nn.Softmax(dim=-1)}


class Vibration(Dataset):
    """Shaft rotation plus noise; damaged bearings ring at regular intervals."""

    def __init__(self, cfg, n, seed):
        rng = np.random.default_rng(seed)
        t = np.arange(cfg.length)
        self.y = (rng.random(n) < 0.4).astype(np.float32)
        base = np.sin(2 * np.pi * (t / rng.uniform(30, 60, (n, 1)) + rng.random((n, 1))))
        x = base + 0.5 * rng.standard_normal((n, cfg.length))
        for i in np.flatnonzero(self.y):
            period, start = rng.integers(18, 30), rng.integers(0, 18)
            for s in range(start, cfg.length - 12, period):
                k = np.arange(12)
                x[i, s:s + 12] += 2.2 * np.exp(-k / 4) * np.sin(2 * np.pi * k / 4)
        self.x = (x / x.std()).astype(np.float32)[:, None]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i:i + 1]


class GatedConv(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)

    def forward(self, h):
        a, b = self.conv(h).chunk(2, dim=1)
        return h + torch.tanh(a) * torch.sigmoid(b)


class AlarmNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.stem = nn.Conv1d(1, cfg.width, 7, padding=3)
        self.trunk = nn.Sequential(*[GatedConv(cfg.width, d) for d in cfg.dilations])
        self.fc = nn.Linear(2 * cfg.width, 1)
        self.act = ACTIVATIONS[cfg.final_act]()

    def forward(self, x):
        h = self.trunk(self.stem(x))
        h = torch.cat([h.mean(-1), h.amax(-1)], dim=1)
        return self.act(self.fc(h))


class Experiment:
    def __init__(self, cfg):
        torch.set_num_threads(1)
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.train_set, self.val_set = Vibration(cfg, 800, 10 + cfg.seed), Vibration(cfg, 400, 90 + cfg.seed)
        self.net = AlarmNet(cfg)
        if cfg.backend:
            self.net = torch.compile(self.net, backend=cfg.backend)
        self.opt = torch.optim.NAdam(self.net.parameters(), lr=cfg.lr)
        self.criterion = nn.MSELoss()
        self.history = []

    def fit_epoch(self):
        self.net.train()
        for x, y in DataLoader(self.train_set, self.cfg.batch_size, shuffle=True):
            loss = self.criterion(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.history.append(loss.item())

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        hit, n = np.zeros(2), np.zeros(2)
        for x, y in DataLoader(self.val_set, 200):
            right = ((self.net(x) > 0.5).float() == y).squeeze(1).numpy()
            lab = y.squeeze(1).long().numpy()
            hit += np.bincount(lab, weights=right, minlength=2)
            n += np.bincount(lab, minlength=2)
        return float((hit / n).mean())


cfg = Config()
exp = Experiment(cfg)
for epoch in range(cfg.epochs):
    exp.fit_epoch()
    bal = exp.validate()
    print(f"epoch {epoch + 1}: mse {np.mean(exp.history[-20:]):.4f}  balanced accuracy {bal:.3f}")
fin = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(exp.history[0]), "loss_last": fin(np.mean(exp.history[-20:])), "metric_name": "balanced_accuracy",
                  "metric": bal, "ok": bal > 0.85}))
