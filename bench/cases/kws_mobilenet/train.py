# Keyword spotting on log-mel patches with a small depthwise-separable network.
import json
import math
import os
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

seed = int(os.environ.get("CASE_SEED", "0"))
variant = os.environ.get("CASE_VARIANT", "faulty")
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(seed)

WORDS = ["yes", "no", "up", "down", "left", "right", "on", "off"]


@dataclass
class MobileKwsConfig:
    num_labels: int = len(WORDS)
    stem: int = 24
    channels: list = field(default_factory=lambda: [32, 48, 64])
    strides: list = field(default_factory=lambda: [2, 1, 2])
    classifier_dropout_prob: float = 0.001 if variant == "fixed" else 0.999
    layer_norm_eps: float = 1e-3
    batch_norm_momentum: float = 0.1


class Utterances(Dataset):
    """Formant-like tracks with random onset, speed and loudness over noise."""

    def __init__(self, n, g, mels=20, frames=36):
        t = np.linspace(0, 1, 22)
        self.y = g.integers(0, len(WORDS), n)
        self.x = g.normal(0, 1.0, (n, mels, frames)).astype(np.float32)
        m = np.arange(mels)[:, None]
        for i, k in enumerate(self.y):
            a, b, c = [(4, 14, 0), (14, 4, 0), (6, 6, 5), (13, 13, -5), (3, 8, 4), (8, 3, 4), (10, 16, -4), (16, 10, -4)][k]
            track = a + (b - a) * t + c * np.sin(math.pi * t) + g.normal(0, 0.6)
            on = g.integers(0, frames - 22)
            blob = np.exp(-0.5 * ((m - track[None]) / 1.1) ** 2)
            self.x[i, :, on:on + 22] += g.uniform(2.2, 3.5) * blob

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), int(self.y[i])


class SepConv(nn.Sequential):
    def __init__(self, cin, cout, stride, cfg):
        super().__init__(
            nn.Conv1d(cin, cin, 3, stride, 1, groups=cin, bias=False),
            nn.BatchNorm1d(cin, cfg.layer_norm_eps, cfg.batch_norm_momentum), nn.ReLU6(),
            nn.Conv1d(cin, cout, 1, bias=False),
            nn.BatchNorm1d(cout, cfg.layer_norm_eps, cfg.batch_norm_momentum), nn.ReLU6(),
        )


class MobileKwsForClassification(nn.Module):
    def __init__(self, cfg, mels=20):
        super().__init__()
        self.conv_stem = nn.Sequential(nn.Conv1d(mels, cfg.stem, 5, 1, 2, bias=False), nn.BatchNorm1d(cfg.stem), nn.ReLU6())
        chans = [cfg.stem] + cfg.channels
        self.layer = nn.ModuleList(SepConv(a, b, s, cfg) for a, b, s in zip(chans, chans[1:], cfg.strides))
        self.pooler = nn.AdaptiveAvgPool1d(1)
        self.dropout = nn.Dropout(cfg.classifier_dropout_prob, inplace=True)
        self.classifier = nn.Linear(chans[-1], cfg.num_labels)

    def forward(self, x):
        x = self.conv_stem(x)
        for layer in self.layer:
            x = layer(x)
        return self.classifier(self.dropout(self.pooler(x).flatten(1)))


class Trainer:
    def __init__(self, model, train, valid, epochs=9, lr=3e-3):
        self.model, self.train_dl, self.valid_dl, self.epochs = model, train, valid, epochs
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-4)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, lr, total_steps=epochs * len(train), pct_start=0.2)
        self.ce = nn.CrossEntropyLoss()
        self.log = []

    def evaluate(self):
        self.model.eval()
        hit = tot = 0
        ce = 0.0
        with torch.inference_mode():
            for x, y in self.valid_dl:
                out = self.model(x)
                ce += self.ce(out, y).item() * len(y)
                hit += (out.argmax(-1) == y).sum().item()
                tot += len(y)
        return hit / tot, ce / tot

    def fit(self):
        for ep in range(self.epochs):
            self.model.train()
            run = []
            for x, y in self.train_dl:
                loss = self.ce(self.model(x), y)
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                self.sched.step()
                run.append(loss.item())
            self.log += run
            acc, ce = self.evaluate()
            print(f"[epoch {ep + 1}/{self.epochs}] train {np.mean(run):.3f} valid {ce:.3f} acc {acc:.3f}")
        return acc


g = np.random.default_rng(seed)
train = DataLoader(Utterances(2400, g), batch_size=64, shuffle=True, drop_last=True)
valid = DataLoader(Utterances(600, g), batch_size=200)
net = MobileKwsForClassification(MobileKwsConfig())
if backend:
    net = torch.compile(net, backend=backend)
trainer = Trainer(net, train, valid)
acc = trainer.fit()
num = lambda v: round(float(v), 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": num(trainer.log[0]), "loss_last": num(np.mean(trainer.log[-20:])),
                  "metric_name": "valid_accuracy", "metric": num(acc), "ok": acc > 0.85}))
