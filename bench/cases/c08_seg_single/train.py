"""Lesion segmentation on CT-like slices with a tiny U-Net; predictions are made slice by slice."""
import json
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


def slices(n, s):
    g = np.random.default_rng(s)
    yy, xx = np.mgrid[0:24, 0:24]
    X = np.zeros((n, 1, 24, 24), np.float32)
    Y = np.zeros((n, 1, 24, 24), np.float32)
    for k in range(n):
        img = 0.3 * g.normal(size=(24, 24))
        organ = np.hypot(yy - g.uniform(9, 15), xx - g.uniform(9, 15)) < g.uniform(4, 10)
        img[organ] += 1.0
        if g.random() < 0.5:
            cy, cx = g.uniform(5, 19, 2)
            les = np.hypot(yy - cy, xx - cx) < g.uniform(2, 6)
            img[les] = 2.2 + 0.3 * g.normal(size=les.sum())
            Y[k, 0][les] = 1
        X[k, 0] = img
    return torch.from_numpy(X), torch.from_numpy(Y)


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class MiniUNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.enc1 = block(1, c)
        self.enc2 = block(c, 2 * c)
        self.mid = block(2 * c, 2 * c)
        self.dec1 = block(3 * c, c)
        self.drop = nn.Dropout2d(0.2)
        self.mask_head = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.mid(self.enc2(F.max_pool2d(a, 2)))
        up = F.interpolate(b, scale_factor=2.0, mode="nearest")
        return self.mask_head(self.drop(self.dec1(torch.cat([a, up], 1))))


def loss_fn(logits, target):
    p = torch.sigmoid(logits)
    dice = 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)
    return F.binary_cross_entropy_with_logits(logits, target) + 0.5 * dice


def predict(model, image):
    with torch.no_grad():
        return torch.sigmoid(model(image[None]))[0] > 0.5


def mean_dice(model, X, Y):
    scores = []
    for img, gt in zip(X, Y):
        pred = predict(model, img).float()
        scores.append(((2 * (pred * gt).sum() + 1) / (pred.sum() + gt.sum() + 1)).item())
    return float(np.mean(scores))


train_x, train_y = slices(480, seed)
test_x, test_y = slices(60, seed + 77)
model = MiniUNet()
if backend:
    model = torch.compile(model, backend=backend)
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=150)
losses = []
model.train()
for epoch in range(10):
    for idx in torch.randperm(len(train_x)).split(32):
        x, y = train_x[idx], train_y[idx]
        if torch.rand(()) < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        opt.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        opt.step()
        sched.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {np.mean(losses[-15:]):.4f}")

if variant == "fixed":
    model.eval()
dice = mean_dice(model, test_x, test_y)
print(f"slice-wise dice {dice:.3f}")
print(json.dumps({"loss_first": losses[0], "loss_last": losses[-1], "metric_name": "mean_dice", "metric": dice, "ok": dice > 0.85}))
