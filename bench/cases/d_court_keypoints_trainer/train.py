"""Court keypoint heat maps from rendered frames (white lines on noisy ground, random view)."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(seed)
rng = np.random.default_rng(seed)

SIZE, K = 32, 4
YY, XX = np.mgrid[0:SIZE, 0:SIZE]


def segment(img, a, b):
    for t in np.linspace(0, 1, 48):
        x, y = (1 - t) * a + t * b
        img[int(round(y)), int(round(x))] = 1.0


def sample():
    """a quadrilateral court: corners are numbered clockwise from the top left"""
    base = np.array([[8, 8], [23, 8], [23, 23], [8, 23]], float)
    pts = np.clip(base + rng.uniform(-5, 5, (4, 2)), 2, SIZE - 3)
    img = rng.normal(0.3, 0.08, (SIZE, SIZE))
    for i in range(4):
        segment(img, pts[i], pts[(i + 1) % 4])
    maps = np.stack([np.exp(-((XX - x) ** 2 + (YY - y) ** 2) / (2 * 1.5 ** 2)) for x, y in pts])
    return img[None], maps, pts


def build(n):
    imgs, maps, pts = zip(*(sample() for _ in range(n)))
    to = lambda a: torch.tensor(np.stack(a), dtype=torch.float32)
    return to(imgs), to(maps), to(pts)


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class TrackNetLite(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.stem = ConvBlock(1, 8)
        self.down1 = ConvBlock(8, 16, 2)
        self.down2 = nn.Sequential(ConvBlock(16, 32, 2), ConvBlock(32, 32))
        self.up1 = ConvBlock(32 + 16, 16)
        self.up2 = ConvBlock(16 + 8, 16)
        self.out = nn.Conv2d(16, k, 1)

    def forward(self, x):
        s0 = self.stem(x)
        s1 = self.down1(s0)
        s2 = self.down2(s1)
        y = self.up1(torch.cat([F.interpolate(s2, scale_factor=2.0), s1], 1))
        y = self.up2(torch.cat([F.interpolate(y, scale_factor=2.0), s0], 1))
        return self.out(y)


class BaseTrainer:
    def __init__(self, model, optimizer, criterion, batch_size=16):
        self.model, self.optimizer, self.criterion, self.bs = model, optimizer, criterion, batch_size
        self.history = []

    def on_epoch(self, images, maps):
        self.model.train()
        order = torch.randperm(len(images))
        for i in range(0, len(order) - self.bs + 1, self.bs):
            idx = order[i:i + self.bs]
            out = self.model(images[idx])
            loss = self.criterion(torch.sigmoid(out), maps[idx])
            if variant == "fixed":
                self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.history.append(loss.item())

    @torch.no_grad()
    def validate(self, images, pts):
        """share of corners found within 2 px"""
        self.model.eval()
        flat = self.model(images).flatten(2).argmax(-1)
        pred = torch.stack([flat % SIZE, flat // SIZE], -1).float()
        dist = (pred - pts).norm(dim=-1)
        return (dist <= 2.0).float().mean().item(), dist.median().item()


def weighted_mse(pred, target):
    return ((pred - target) ** 2 * (1 + 20 * target)).mean()


train_x, train_m, _ = build(320)
val_x, _, val_p = build(150)

net = TrackNetLite(K)
if backend:
    net = torch.compile(net, backend=backend)
opt = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
trainer = BaseTrainer(net, opt, weighted_mse)

for epoch in range(7):
    trainer.on_epoch(train_x, train_m)
    pck, med = trainer.validate(val_x, val_p)
    print(f"[{epoch:02d}] loss={np.mean(trainer.history[-25:]):.5f} pck@2={pck:.3f} median={med:.2f}px")

last = float(np.mean(trainer.history[-10:]))
print(json.dumps({"loss_first": trainer.history[0], "loss_last": last if math.isfinite(last) else None,
                  "metric_name": "pck_2px", "metric": pck, "ok": pck > 0.85}))
