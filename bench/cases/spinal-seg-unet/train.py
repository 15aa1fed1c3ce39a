import json
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)


class AxialSlices(Dataset):
    """Noisy axial slices with one elliptic cord and some bright distractors; mask = cord."""

    def __init__(self, n, seed, augment=False):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[0:32, 0:32]
        self.x, self.y = [], []
        for _ in range(n):
            cy, cx = rng.uniform(9, 23, 2)
            a, b = rng.uniform(3, 6, 2)
            m = ((yy - cy) / a) ** 2 + ((xx - cx) / b) ** 2 < 1
            img = rng.normal(0, 0.45, (32, 32)) + 1.0 * m
            for _ in range(3):
                py, px = rng.uniform(0, 32, 2)
                img += 1.2 * np.exp(-((yy - py) ** 2 + (xx - px) ** 2) / 3.0)
            img = (img - img.mean()) / img.std()
            self.x.append(img.astype(np.float32)[None])
            self.y.append(m.astype(np.float32)[None])
        self.augment = augment

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x, y = torch.from_numpy(self.x[i]), torch.from_numpy(self.y[i])
        if self.augment and torch.rand(()) < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        return x, y


def block(ci, co):
    return nn.Sequential(nn.Conv2d(ci, co, 3, padding=1), nn.BatchNorm2d(co), nn.ReLU(),
                         nn.Conv2d(co, co, 3, padding=1), nn.BatchNorm2d(co), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, f=8):
        super().__init__()
        self.enc1 = block(1, f)
        self.enc2 = block(f, 2 * f)
        self.bottom = block(2 * f, 4 * f)
        self.up2 = nn.ConvTranspose2d(4 * f, 2 * f, 2, stride=2)
        self.dec2 = block(4 * f, 2 * f)
        self.up1 = nn.ConvTranspose2d(2 * f, f, 2, stride=2)
        self.dec1 = block(2 * f, f)
        self.head = nn.Conv2d(f, 1, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(self.pool(e1))
        z = self.bottom(self.pool(e2))
        z = self.dec2(torch.cat([self.up2(z), e2], 1))
        z = self.dec1(torch.cat([self.up1(z), e1], 1))
        return torch.sigmoid(self.head(z))


def dice_loss(p, t, smooth=1.0):
    inter = (p * t).sum(dim=(1, 2, 3))
    return (1 - (2 * inter + smooth) / (p.sum(dim=(1, 2, 3)) + t.sum(dim=(1, 2, 3)) + smooth)).mean()


def hard_dice(net, loader):
    net.eval()
    ds = []
    with torch.no_grad():
        for x, y in loader:
            p = (net(x) > 0.5).float()
            ds.append((2 * (p * y).sum((1, 2, 3)) + 1e-6) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1e-6))
    return torch.cat(ds).mean().item()


train_loader = DataLoader(AxialSlices(320, SEED * 10 + 1, augment=True), batch_size=16, shuffle=True)
val_loader = DataLoader(AxialSlices(80, SEED * 10 + 2), batch_size=40)

net = UNet()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

losses = []
for epoch in range(10):
    net.train()
    running = 0.0
    for x, y in train_loader:
        pred = model(x)
        loss = dice_loss(pred, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if VARIANT != "fixed":
            scheduler.step()
        losses.append(loss.item())
        running += loss.item()
    if VARIANT == "fixed":
        scheduler.step()
    print(f"epoch {epoch + 1:2d} train dice loss {running / len(train_loader):.4f} "
          f"val dice {hard_dice(net, val_loader):.3f}")

dice = hard_dice(net, val_loader)
print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-10:])),
                  "metric_name": "val_dice", "metric": dice, "ok": dice > 0.9}))
