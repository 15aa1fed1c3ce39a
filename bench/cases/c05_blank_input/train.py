"""Classify hand-drawn symbols from anti-aliased sketches (circle / triangle / cross / bar)."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

FIXED = os.environ.get("CASE_VARIANT", "faulty") == "fixed"
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)


def draw(kind, g, size=40):
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    cy, cx, r = g.uniform(15, 25), g.uniform(15, 25), g.uniform(7, 11)
    dy, dx = yy - cy, xx - cx
    w = g.uniform(1.2, 1.8)
    if kind == 0:
        d = np.abs(np.hypot(dy, dx) - r)
    elif kind == 1:
        d = np.abs(np.maximum.reduce([dy, -0.5 * dy + 0.87 * dx, -0.5 * dy - 0.87 * dx]) - 0.5 * r)
    elif kind == 2:
        d = np.where(np.maximum(abs(dx), abs(dy)) < r, np.minimum(abs(dx - dy), abs(dx + dy)) / 1.41, 99)
    else:
        d = np.where(abs(dx) < r, abs(dy), 99)
    ink = np.clip(w + 0.5 - d, 0, 1)
    return (ink * g.uniform(200, 250)).astype(np.uint8)


class Sketches(Dataset):
    def __init__(self, n, seed, size=20):
        g = np.random.default_rng(seed)
        self.labels = g.integers(0, 4, size=n)
        self.images = [draw(k, g) for k in self.labels]
        self.size = size

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = torch.from_numpy(self.images[i])[None, None].float()
        img = F.interpolate(img, size=(self.size, self.size), mode="bilinear", align_corners=False)
        img = img.round().to(torch.uint8)[0]
        img = img / 255 if FIXED else img // 255
        return img.float(), int(self.labels[i])


class SymbolNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Linear(24 * 25, 4)

    def forward(self, x):
        return self.fc(self.body(self.stem(x)).flatten(1))


train_dl = DataLoader(Sketches(800, SEED), batch_size=32, shuffle=True)
val_dl = DataLoader(Sketches(200, SEED + 1000), batch_size=100)
net = SymbolNet()
run = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
losses, acc = [], 0.0
for epoch in range(5):
    net.train()
    for x, y in train_dl:
        loss = F.cross_entropy(run(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        acc = float(np.mean([(run(x).argmax(1) == y).float().mean().item() for x, y in val_dl]))
    print(f"[{epoch}] loss {np.mean(losses[-25:]):.4f}  val acc {acc:.3f}")
print(json.dumps({"loss_first": losses[0], "loss_last": losses[-1], "metric_name": "val_accuracy", "metric": acc, "ok": acc > 0.85}))
