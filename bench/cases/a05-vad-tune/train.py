"""Fine-tune a tiny voice activity detector on synthetic noisy calls."""
import json
import os

import numpy as np
import torch
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

FRAMES, BINS = 40, 24


class AverageMeter:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def update(self, v, n=1):
        self.total += v * n
        self.n += n

    @property
    def avg(self):
        return self.total / max(self.n, 1)


def synth_calls(n, rng):
    """log-mel-like frames: voiced stretches carry a moving harmonic comb, the rest is coloured noise and clicks"""
    x = rng.normal(0, 1.0, (n, FRAMES, BINS)).astype(np.float32)
    tilt = np.linspace(0.5, -0.5, BINS, dtype=np.float32)[None, None]
    x = x + tilt
    y = np.zeros((n, FRAMES), np.float32)
    bins = np.arange(BINS)
    for i in range(n):
        t, on = 0, rng.random() < 0.5
        while t < FRAMES:
            d = int(rng.integers(4, 14))
            if on:
                f0 = rng.uniform(3.0, 6.0)
                for k in range(t, min(t + d, FRAMES)):
                    f0 = np.clip(f0 + rng.normal(0, 0.1), 3.0, 6.0)
                    x[i, k] += 1.1 * np.cos(2 * np.pi * bins / f0)
                    y[i, k] = 1
            elif rng.random() < 0.5:
                x[i, min(t + 1, FRAMES - 1)] += 1.5
            t, on = t + d, not on
    return torch.from_numpy(x), torch.from_numpy(y)


class Encoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv1d(BINS, c, 3, padding=1)
        self.conv2 = nn.Conv1d(c, c, 3, padding=1)
        self.norm = nn.LayerNorm(c)

    def forward(self, x):
        h = torch.relu(self.conv1(x.transpose(1, 2)))
        h = torch.relu(self.conv2(h)).transpose(1, 2)
        return self.norm(h)


class VAD(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.encoder = Encoder(c)
        self.decoder = nn.ModuleDict({"rnn": nn.GRU(c, c, batch_first=True), "out": nn.Linear(c, 1)})

    def forward(self, x):
        h, _ = self.decoder["rnn"](self.encoder(x))
        return self.decoder["out"](h).squeeze(-1)


def train_epoch(model, x, y, batch, criterion, optimizer, gen):
    meter = AverageMeter()
    for idx in torch.randperm(len(x), generator=gen).split(batch):
        with torch.enable_grad():
            weights = 1.0 + 0.5 * (y[idx] > 0)  # speech frames count a bit more
            loss = (criterion(model(x[idx]), y[idx]) * weights).mean()
            if VARIANT == "fixed":
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        meter.update(loss.item(), len(idx))
        log.append(loss.item())
    return meter.avg


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    pred = (model(x) > 0).float()
    model.train()
    tp = (pred * y).sum().item()
    return {"acc": (pred == y).float().mean().item(), "recall": tp / y.sum().item()}


rng = np.random.default_rng(SEED)
xt, yt = synth_calls(400, rng)
xv, yv = synth_calls(100, rng)
vad = VAD()
net = torch.compile(vad, backend=COMPILE) if COMPILE else vad
optimizer = torch.optim.Adam(vad.parameters(), lr=5e-3)
criterion = nn.BCEWithLogitsLoss(reduction="none")
gen = torch.Generator().manual_seed(SEED)

log = []
for epoch in range(12):
    avg = train_epoch(net, xt, yt, 20, criterion, optimizer, gen)
    if epoch % 2 == 1:
        print(f"epoch {epoch + 1}: train loss {avg:.4f} {evaluate(vad, xv, yv)}")

res = evaluate(vad, xv, yv)
print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-20:])), "metric_name": "frame_accuracy",
                  "metric": res["acc"], "ok": res["acc"] > 0.93}))
