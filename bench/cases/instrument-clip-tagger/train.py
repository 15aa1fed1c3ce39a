import json
import os
import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
SR, LENGTH = 8000, 2048
TIMBRES = {"flute": [1, .2, .05, 0, 0], "clarinet": [1, .02, .7, .02, .4], "violin": [.7, .8, .6, .5, .4], "tuba": [.3, 1, .1, .6, .05], "bell": [.2, .05, .1, .3, 1]}
NAMES = sorted(TIMBRES)


def record(name, rng):
    """One 32-bit PCM clip, as the recorder writes it."""
    t = np.arange(LENGTH) / SR
    f0 = rng.uniform(180, 420)
    wave = sum(a * np.sin(2 * np.pi * f0 * (k + 1) * t + rng.uniform(0, 6.28)) for k, a in enumerate(TIMBRES[name]))
    wave = wave / np.abs(wave).max() * rng.uniform(0.5, 0.9) + rng.normal(0, 0.01, LENGTH)
    return (np.clip(wave, -1, 1) * (2 ** 31 - 1)).astype(np.int32)


def load_clip(pcm):
    """Loader of the audio backend: returns float samples in [-1, 1]."""
    return pcm.astype(np.float64) / 2 ** 31


class ClipDataset:
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.window = np.hanning(256)
        xs, ys = [], []
        for _ in range(n):
            k = int(rng.integers(len(NAMES)))
            audio = load_clip(record(NAMES[k], rng))
            if VARIANT == "faulty":
                audio = audio * 2.0 ** -31
            xs.append(self.spectrogram(audio.astype(np.float32)))
            ys.append(k)
        self.x, self.y = torch.tensor(np.stack(xs), dtype=torch.float32), torch.tensor(ys)

    def spectrogram(self, audio):
        frames = np.lib.stride_tricks.sliding_window_view(audio, 256)[::128] * self.window
        return np.log1p(np.abs(np.fft.rfft(frames, axis=1))).T[:96]

    def batches(self, bs):
        for idx in torch.randperm(len(self.y)).split(bs):
            yield self.x[idx], self.y[idx]


class ConvBlock(nn.Module):
    def __init__(self, i, o, k=3, groups=4):
        super().__init__()
        self.conv = nn.Conv2d(1 if i is None else i, o, k, stride=2, padding=1)
        self.norm = nn.GroupNorm(groups, o)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Tagger(nn.Module):
    def __init__(self, n_class):
        super().__init__()
        self.encoder = nn.Sequential(ConvBlock(None, 8), ConvBlock(8, 16))
        self.pool = nn.AdaptiveAvgPool2d((24, 1))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(16 * 24, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, n_class))

    def forward(self, spec):
        return self.classifier(self.pool(self.encoder(spec.unsqueeze(1))))


train, test = ClipDataset(640, SEED), ClipDataset(200, SEED + 50)
model = Tagger(len(NAMES))
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.02)
hist = []
for epoch in range(8):
    model.train()
    for x, y in train.batches(32):
        opt.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        hist.append(loss.item())
    model.eval()
    with torch.no_grad():
        acc = (model(test.x).argmax(1) == test.y).float().mean().item()
    print(f"epoch {epoch} loss {np.mean(hist[-20:]):.4f} test accuracy {acc:.3f}")
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-20:])), "metric_name": "test_acc", "metric": acc, "ok": acc > 0.85}))
