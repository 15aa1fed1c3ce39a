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
COMPILE = os.environ.get("CASE_COMPILE", "")

torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

BANDS = ["B02", "B03", "B04", "B08", "B11", "B12"]
CLASSES = ["water", "forest", "crop", "bare", "built"]
# typical surface reflectance per class, stored as uint16 = reflectance * 10000
SPECTRA = np.array([
    [620, 590, 450, 320, 210, 160],
    [380, 560, 420, 2900, 1500, 720],
    [620, 930, 800, 3500, 2300, 1400],
    [1100, 1500, 1950, 2700, 3500, 2900],
    [1350, 1500, 1650, 2150, 2250, 1950],
], dtype=np.float32)
BAND_MEAN = torch.tensor([810., 1010., 1060., 2310., 1950., 1420.]).view(-1, 1, 1)
BAND_STD = torch.tensor([390., 440., 630., 1090., 1090., 960.]).view(-1, 1, 1)


def make_tile(rng, size=16, sites=5):
    """Voronoi-like land cover map and its six-band image."""
    py, px = rng.uniform(0, size, sites), rng.uniform(0, size, sites)
    cls = rng.integers(0, len(CLASSES), sites)
    yy, xx = np.mgrid[0:size, 0:size]
    d = (yy[None] - py[:, None, None]) ** 2 + (xx[None] - px[:, None, None]) ** 2
    mask = cls[d.argmin(0)]
    illum = rng.normal(1.0, 0.06)
    img = SPECTRA[mask] * illum
    img = img * (1 + 0.14 * rng.standard_normal(img.shape)) + rng.normal(0, 110, img.shape)
    return np.clip(img, 0, 12000).astype(np.uint16).transpose(2, 0, 1), mask.astype(np.int64)


class TileDataset(Dataset):
    def __init__(self, n, seed, augment=False):
        rng = np.random.default_rng(seed)
        tiles = [make_tile(rng) for _ in range(n)]
        self.img = np.stack([t[0] for t in tiles])
        self.mask = np.stack([t[1] for t in tiles])
        self.augment = augment

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        x = torch.from_numpy(self.img[i].astype(np.float32))
        y = torch.from_numpy(self.mask[i])
        if VARIANT == "fixed":
            x = (x - BAND_MEAN) / BAND_STD
        if self.augment and random.random() < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        return x, y


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(inplace=True),
                         nn.Conv2d(cout, cout, 3, padding=1), nn.ReLU(inplace=True))


class SmallUNet(nn.Module):
    def __init__(self, cin, ncls, w=8):
        super().__init__()
        self.enc1 = block(cin, w)
        self.enc2 = block(w, 2 * w)
        self.up = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.dec1 = block(2 * w, w)
        self.head = nn.Conv2d(w, ncls, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        return self.head(self.dec1(torch.cat([self.up(e2), e1], 1)))


def mean_iou(model, loader):
    inter, union = torch.zeros(len(CLASSES)), torch.zeros(len(CLASSES))
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            p = model(x).argmax(1)
            for c in range(len(CLASSES)):
                inter[c] += ((p == c) & (y == c)).sum()
                union[c] += ((p == c) | (y == c)).sum()
    model.train()
    return (inter / union.clamp(min=1)).mean().item()


train_dl = DataLoader(TileDataset(192, 1000 + SEED, augment=True), batch_size=16, shuffle=True)
val_dl = DataLoader(TileDataset(48, 5000 + SEED), batch_size=24)

net = SmallUNet(len(BANDS), len(CLASSES))
model = torch.compile(net, backend=COMPILE) if COMPILE else net
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)

losses = []
for epoch in range(20):
    for x, y in train_dl:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    if epoch % 4 == 0 or epoch == 19:
        print(f"epoch {epoch:2d}  loss {np.mean(losses[-12:]):.4f}  mIoU {mean_iou(model, val_dl):.3f}")

miou = mean_iou(model, val_dl)
first, last = losses[0], float(np.mean(losses[-12:]))
clean = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": clean(first), "loss_last": clean(last), "metric_name": "val_miou",
                  "metric": clean(miou), "ok": bool(miou > 0.75)}))
