import json
import math
import os
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

SR, LENGTH, N_FFT, HOP = 2000, 800, 128, 64
FAR, NEAR = 400.0, 6000.0        # 16-bit PCM amplitude of far-field and close-talk recordings


def recordings(n):
    """five spoken-command stand-ins: chirps with different start and end pitch, at varying loudness"""
    pitch = [(150, 150), (150, 500), (500, 150), (500, 500), (320, 700)]
    t = np.arange(LENGTH) / SR
    wav, lab = np.empty((n, LENGTH)), np.random.randint(0, len(pitch), n)
    for i, c in enumerate(lab):
        f0, f1 = (f * np.random.uniform(0.9, 1.1) for f in pitch[c])
        phase = 2 * math.pi * (f0 * t + (f1 - f0) * t ** 2 / (2 * t[-1]))
        amp = math.exp(np.random.uniform(math.log(FAR), math.log(NEAR)))
        wav[i] = amp * (np.sin(phase + np.random.uniform(0, 6)) + 0.3 * np.random.randn(LENGTH))
    return torch.tensor(np.round(wav), dtype=torch.float32), torch.from_numpy(lab)


class LogMel(nn.Module):
    """DFT by matrix product, power, mel-like bands, log"""

    def __init__(self, bands=20):
        super().__init__()
        n = torch.arange(N_FFT, dtype=torch.float32)
        k = torch.arange(N_FFT // 2, dtype=torch.float32)
        angle = 2 * math.pi * k[:, None] * n[None] / N_FFT
        win = torch.hann_window(N_FFT)
        self.register_buffer("real", torch.cos(angle) * win)
        self.register_buffer("imag", torch.sin(angle) * win)
        edges = torch.linspace(0, N_FFT // 2, bands + 1)
        self.register_buffer("fbank", ((k[None] >= edges[:-1, None]) & (k[None] < edges[1:, None])).float())

    def forward(self, wav):
        frames = wav.unfold(-1, N_FFT, HOP)
        re, im = F.linear(frames, self.real), F.linear(frames, self.imag)
        power = re.pow(2) + im.pow(2)
        return torch.log(F.linear(power, self.fbank) + 1.0)


class CommandNet(nn.Module):
    def __init__(self, bands=20, classes=5):
        super().__init__()
        self.features = LogMel(bands)
        self.norm = nn.LayerNorm(bands)
        self.conv = nn.Conv1d(bands, 32, 3, padding=1)
        self.head = nn.Sequential(nn.Linear(32 * 2, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, wav):
        if VARIANT == "fixed":
            with torch.autocast("cpu", enabled=False):
                feats = self.features(wav.float())
        else:
            feats = self.features(wav)
        h = F.relu(self.conv(self.norm(feats).transpose(1, 2)))
        half = h.size(-1) // 2
        return self.head(torch.cat([h[..., :half].mean(-1), h[..., half:].mean(-1)], -1))


train_wav, train_lab = recordings(600)
test_wav, test_lab = recordings(200)
net = CommandNet()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

losses = []
for step in range(1, 151):
    i = torch.randint(0, len(train_wav), (32,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(train_wav[i]).float(), train_lab[i])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
    if step % 30 == 0:
        print(f"[{step}/150] loss {loss.item():.4f} scale {scaler.get_scale():g}")

with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
    acc = (model(test_wav).float().nan_to_num().argmax(1) == test_lab).float().mean().item()
fin = lambda v: round(float(v), 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(np.mean(losses[-10:])), "metric_name": "test_accuracy",
                  "metric": fin(acc), "ok": bool(acc > 0.9 and math.isfinite(losses[-1]))}))
