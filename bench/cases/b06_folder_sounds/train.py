"""Sound tags from log-spectrogram frames. Records are packed by a list file (one folder per tag)."""
import os, json, math, random
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import IterableDataset, DataLoader

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)
torch.set_num_threads(1)

TAGS = ["bell", "chirp_up", "chirp_down", "noise", "tremolo", "pulse", "fifth", "hum"]
BANDS, FRAMES = 24, 32


def render(tag, rng):
    t = np.arange(FRAMES)
    S = np.zeros((BANDS, FRAMES))
    f0 = rng.uniform(5, 17)
    band = np.arange(BANDS)[:, None]
    line = lambda f, w=1.0: np.exp(-0.5 * ((band - f) / w) ** 2)
    if tag == "bell":
        S += line(f0) * np.exp(-t / 8.0) + 0.5 * line(f0 + 5) * np.exp(-t / 4.0)
    elif tag == "chirp_up":
        S += line(f0 - 5 + 10 * t / FRAMES)
    elif tag == "chirp_down":
        S += line(f0 + 5 - 10 * t / FRAMES)
    elif tag == "noise":
        S += rng.rand(BANDS, FRAMES) * 0.8
    elif tag == "tremolo":
        S += line(f0) * (0.5 + 0.5 * np.sin(2 * np.pi * t / rng.uniform(5, 8)))
    elif tag == "pulse":
        S += (t % rng.randint(6, 10) == 0) * np.ones((BANDS, 1)) * 0.9
    elif tag == "fifth":
        S += line(f0 - 3) + line(f0 + 4)
    else:
        S += line(2.0, 1.5)
    return (S * rng.uniform(0.6, 1.3) + 0.25 * rng.randn(BANDS, FRAMES)).astype(np.float32)


def write_records(per_tag, rng):
    """walk the folders and append every clip; returns the packed records"""
    items = []
    for label, tag in enumerate(TAGS):
        for k in range(per_tag):
            items.append((f"{tag}/{k:04d}.wav", render(tag, rng), label))
    return items


class RecordStream(IterableDataset):
    def __init__(self, records, training):
        self.records, self.training = records, training

    def __iter__(self):
        rows = list(self.records)
        if self.training and VARIANT == "fixed":
            random.shuffle(rows)
        for _, spec, label in rows:
            if self.training and random.random() < 0.5:
                spec = np.roll(spec, random.randint(-2, 2), axis=1)
            yield torch.from_numpy(spec.copy()), label


class TagNet(nn.Module):
    def __init__(self, n):
        super().__init__()
        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(block(1, 16), block(16, 32), block(32, 48))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(48 * 3 * 4, 64), nn.ReLU(), nn.Linear(64, n))

    def forward(self, s):
        return self.head(self.body(s.unsqueeze(1)))


rng = np.random.RandomState(SEED + 3)
train_dl = DataLoader(RecordStream(write_records(160, rng), True), batch_size=32)
val_dl = DataLoader(RecordStream(write_records(40, rng), False), batch_size=64)
model = TagNet(len(TAGS))
net = torch.compile(model, backend=COMPILE) if COMPILE else model
opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
crit = nn.CrossEntropyLoss()

trace = []
for epoch in range(6):
    model.train()
    hit = seen = 0
    for x, y in train_dl:
        out = net(x)
        loss = crit(out, y)
        opt.zero_grad(); loss.backward(); opt.step()
        trace.append(loss.item())
        hit += (out.argmax(1) == y).sum().item(); seen += len(y)
    model.eval()
    with torch.no_grad():
        res = [(model(x).argmax(1) == y).float().mean().item() * len(y) for x, y in val_dl]
    acc = sum(res) / (40 * len(TAGS))
    print(f"Epoch[{epoch}] Train-accuracy={hit / seen:.4f} Train-loss={np.mean(trace[-40:]):.4f} Validation-accuracy={acc:.4f}")

fin = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(trace[0]), "loss_last": fin(np.mean(trace[-40:])), "metric_name": "val_accuracy",
                  "metric": acc, "ok": bool(acc > 0.85)}))
