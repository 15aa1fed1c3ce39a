"""2-D organ segmentation on synthetic CT-like slices with a small U-Net (dice + cross-entropy)."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")

torch.set_num_threads(1)
random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)

SIZE = 16


def make_slices(n):
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    imgs, masks = [], []
    for _ in range(n):
        img = np.random.normal(0, 0.35, (SIZE, SIZE))
        lab = np.zeros((SIZE, SIZE), dtype=np.int64)
        for organ in (1, 2):
            cy, cx = np.random.uniform(4, SIZE - 4, 2)
            ry, rx = np.random.uniform(2.0, 3.5, 2)
            inside = ((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1
            lab[inside] = organ
            img[inside] += 1.0 if organ == 1 else -1.0
        imgs.append(img)
        masks.append(lab)
    return torch.tensor(np.stack(imgs), dtype=torch.float32).unsqueeze(1), torch.tensor(np.stack(masks))


def double_conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.LeakyReLU(0.01),
                         nn.Conv2d(cout, cout, 3, padding=1), nn.LeakyReLU(0.01))


class UNet(nn.Module):
    def __init__(self, base=8, classes=3):
        super().__init__()
        self.enc1 = double_conv(1, base)
        self.enc2 = double_conv(base, 2 * base)
        self.bottom = double_conv(2 * base, 4 * base)
        self.up2 = nn.ConvTranspose2d(4 * base, 2 * base, 2, stride=2)
        self.dec2 = double_conv(4 * base, 2 * base)
        self.up1 = nn.ConvTranspose2d(2 * base, base, 2, stride=2)
        self.dec1 = double_conv(2 * base, base)
        self.seg = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.dec2(torch.cat([self.up2(c), b], 1))
        a = self.dec1(torch.cat([self.up1(b), a], 1))
        return self.seg(a)


def soft_dice(logits, target):
    p = logits.softmax(1)[:, 1:]
    t = F.one_hot(target, 3).permute(0, 3, 1, 2)[:, 1:].float()
    inter = (p * t).sum((0, 2, 3))
    return 1 - (2 * inter / (p.sum((0, 2, 3)) + t.sum((0, 2, 3)) + 1e-5)).mean()


def hard_dice(logits, target):
    pred = logits.argmax(1)
    return float(np.mean([(2 * ((pred == c) & (target == c)).sum() / ((pred == c).sum() + (target == c).sum() + 1e-8)).item()
                          for c in (1, 2)]))


train_x, train_y = make_slices(160)
val_x, val_y = make_slices(48)
net = UNet()
model = torch.compile(net, backend=backend) if backend else net

MAX_ITERS = 160
momentum = 0.9 if variant == "fixed" else 0.99
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum, nesterov=True, weight_decay=3e-5)

history = []
for it in range(MAX_ITERS):
    pick = torch.randint(0, len(train_x), (8,))
    logits = model(train_x[pick])
    loss = F.cross_entropy(logits, train_y[pick]) + soft_dice(logits, train_y[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    if it % 20 == 0:
        print(f"iter {it:4d} | train loss {np.mean(history[-20:]):.4f}")

with torch.no_grad():
    dice = hard_dice(model(val_x), val_y)
num = lambda v: round(float(v), 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": num(history[0]), "loss_last": num(np.mean(history[-10:])), "metric_name": "mean_dice",
                  "metric": num(dice), "ok": bool(dice > 0.8)}))
