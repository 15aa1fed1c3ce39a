"""Land-cover classification of small multispectral tiles (6 bands, surface reflectance)."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

CLASSES = ["water", "forest", "crop", "urban", "bare"]
SPECTRA = np.array([                 # blue, green, red, nir, swir1, swir2
    [0.06, 0.06, 0.04, 0.03, 0.02, 0.01],
    [0.04, 0.06, 0.04, 0.28, 0.14, 0.07],
    [0.06, 0.09, 0.08, 0.30, 0.20, 0.12],
    [0.13, 0.15, 0.16, 0.21, 0.23, 0.20],
    [0.12, 0.16, 0.21, 0.27, 0.33, 0.28]], dtype=np.float32)
BAND_MEAN = np.array([0.082, 0.104, 0.106, 0.218, 0.184, 0.136], dtype=np.float32)
BAND_STD = np.array([0.05, 0.05, 0.07, 0.11, 0.11, 0.10], dtype=np.float32)


def make_scene(n, rng, size=16):
    """Digital numbers as delivered in the product: reflectance * 10000, uint16."""
    labels = rng.integers(0, len(CLASSES), n)
    tiles = np.zeros((n, 6, size, size), dtype=np.uint16)
    yy, xx = np.mgrid[0:size, 0:size]
    for i, c in enumerate(labels):
        haze = rng.normal(1.0, 0.12)
        base = SPECTRA[c][:, None, None] * haze * (1 + 0.08 * rng.normal(size=(6, 1, 1)))
        tex = rng.normal(0, 0.012, (6, size, size))
        if c == 2:
            tex += 0.02 * np.sin(2 * np.pi * (xx * math.cos(i) + yy * math.sin(i)) / 5)
        if c == 3:
            tex += 0.04 * (rng.random((1, size // 4, size // 4)).repeat(4, 1).repeat(4, 2) - 0.5)
        tiles[i] = np.clip((base + tex) * 10000, 0, 9500).astype(np.uint16)
    return tiles, labels


class TileDataset(Dataset):
    def __init__(self, tiles, labels, train):
        self.tiles, self.labels, self.train = tiles, labels, train

    def __len__(self):
        return len(self.labels)

    @staticmethod
    def to_bytes(refl):
        # 8-bit rasters keep the cache small and the geometric ops fast
        if VARIANT == "fixed":
            refl = refl * 255
        return refl.astype(np.uint8)

    def __getitem__(self, i):
        refl = self.tiles[i].astype(np.float32) / 10000.0
        img = self.to_bytes(refl)
        if self.train:
            img = np.rot90(img, k=random.randint(0, 3), axes=(1, 2))
            if random.random() < 0.5:
                img = img[:, :, ::-1]
        img = img.astype(np.float32) / 255.0
        img = (img - BAND_MEAN[:, None, None]) / BAND_STD[:, None, None]
        return torch.from_numpy(np.ascontiguousarray(img)), int(self.labels[i])


class SepConv(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.dw = nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False)
        self.pw = nn.Conv2d(cin, cout, 1, bias=False)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        return F.silu(self.norm(self.pw(self.dw(x))))


class TileNet(nn.Module):
    def __init__(self, bands=6, width=24, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(bands, width, 3, padding=1)
        self.body = nn.Sequential(SepConv(width, width), SepConv(width, 2 * width, 2), SepConv(2 * width, 2 * width))
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        h = self.body(F.silu(self.stem(x)))
        return self.head(h.mean(dim=(2, 3)))


def evaluate(net, loader):
    net.eval()
    hit = tot = 0
    with torch.no_grad():
        for x, y in loader:
            hit += (net(x).argmax(1) == y).sum().item()
            tot += len(y)
    net.train()
    return hit / tot


def main():
    rng = np.random.default_rng(SEED + 7)
    train_ds = TileDataset(*make_scene(960, rng), train=True)
    val_ds = TileDataset(*make_scene(300, rng), train=False)
    train_dl = DataLoader(train_ds, batch_size=32, shuffle=True, drop_last=True)
    val_dl = DataLoader(val_ds, batch_size=100)
    net = TileNet(classes=len(CLASSES))
    if BACKEND:
        net = torch.compile(net, backend=BACKEND)
    epochs = 7
    opt = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 8e-3, total_steps=epochs * len(train_dl))
    first, recent = None, []
    for ep in range(epochs):
        for x, y in train_dl:
            loss = F.cross_entropy(net(x), y, label_smoothing=0.02)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            first = loss.item() if first is None else first
            recent = (recent + [loss.item()])[-15:]
        print(f"epoch {ep} loss {np.mean(recent):.4f} val_acc {evaluate(net, val_dl):.3f}")
    acc = evaluate(net, val_dl)
    last = float(np.mean(recent))
    print(json.dumps({"loss_first": first, "loss_last": last if math.isfinite(last) else None,
                      "metric_name": "val_accuracy", "metric": acc, "ok": bool(acc > 0.85)}))


if __name__ == "__main__":
    main()
