import json
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)

N_MELS, FRAMES, N_CLASS = 24, 32, 6


def log_mel_clips(n, rng):
    """Six sound events: rising/falling/flat chirps, slow or fast tremolo, at random pitch and loudness."""
    f = np.arange(N_MELS)[:, None]
    t = np.arange(FRAMES)[None] / FRAMES
    xs, ys = [], rng.integers(0, N_CLASS, n)
    for y in ys:
        slope = (-8.0, 0.0, 8.0)[y % 3]
        rate = 2.0 if y < 3 else 5.0
        center = rng.uniform(9, 15) + slope * (t - 0.5)
        am = 0.6 + 0.4 * np.sin(2 * np.pi * (rate * t + rng.uniform()))
        spec = np.exp(-((f - center) ** 2) / 5.0) * am + 0.03 * rng.exponential(1.0, (N_MELS, FRAMES))
        xs.append(np.log(spec * rng.uniform(0.5, 2.0) + 1e-3))
    x = torch.tensor(np.stack(xs), dtype=torch.float32).unsqueeze(1)
    return (x - x.mean()) / x.std(), torch.tensor(ys)


class AudioEncoder(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Sequential(nn.Linear(24 * N_MELS // 4, d), nn.ReLU())

    def forward(self, x):
        x = self.features(x).permute(0, 3, 2, 1).flatten(2)
        x = self.fc(x)
        return x.mean(1) + x.amax(1)


class Tagger(nn.Module):
    def __init__(self, encoder, d=64):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(d, N_CLASS)

    def forward(self, x):
        return self.head(self.encoder(x))


def set_requires_grad(module, flag):
    for p in module.parameters():
        if VARIANT == "fixed" or p.requires_grad:
            p.requires_grad = flag


def pretrain(encoder, x, steps=50):
    """Cheap pretext task: predict the loudness and the mean pitch of a clip."""
    lin = nn.Linear(64, 2)
    w = x.exp()
    pitch = (w.mean(3).squeeze(1) * torch.linspace(-1, 1, N_MELS)).sum(1) / w.mean(3).squeeze(1).sum(1)
    tgt = torch.stack([x.mean((1, 2, 3)), pitch], 1)
    tgt = (tgt - tgt.mean(0)) / tgt.std(0)
    o = torch.optim.Adam([*encoder.parameters(), *lin.parameters()], lr=1e-3)
    for _ in range(steps):
        i = torch.randint(0, len(x), (48,))
        loss = (lin(encoder(x[i])) - tgt[i]).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    print(f"pretext loss {loss.item():.3f}")


def train_stage(net, x, y, steps, lr, curve, name):
    model = torch.compile(net, backend=COMPILE) if COMPILE else net
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=1e-3)
    ce = nn.CrossEntropyLoss()
    net.train()
    for s in range(steps):
        i = torch.randint(0, len(x), (48,))
        loss = ce(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
        if s % 40 == 0:
            print(f"{name} step {s} loss {loss.item():.3f}")


@torch.no_grad()
def accuracy(net, x, y):
    net.eval()
    return (net(x).argmax(1) == y).float().mean().item()


rng = np.random.default_rng(SEED)
x_unl, _ = log_mel_clips(600, rng)
x_tr, y_tr = log_mel_clips(800, rng)
x_te, y_te = log_mel_clips(300, rng)

encoder = AudioEncoder()
pretrain(encoder, x_unl)
net = Tagger(encoder)
curve = []

set_requires_grad(net.encoder, False)
train_stage(net, x_tr, y_tr, 80, 3e-3, curve, "linear")
print(f"linear evaluation accuracy {accuracy(net, x_te, y_te):.3f}")

set_requires_grad(net.encoder, True)
train_stage(net, x_tr, y_tr, 200, 2e-3, curve, "finetune")
acc = accuracy(net, x_te, y_te)
print(json.dumps({"loss_first": curve[0], "loss_last": float(np.mean(curve[-10:])),
                  "metric_name": "finetuned_accuracy", "metric": acc, "ok": acc > 0.9}))
