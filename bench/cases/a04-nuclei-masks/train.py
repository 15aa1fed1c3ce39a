import json
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
torch.manual_seed(SEED)
np.random.seed(SEED)
random.seed(SEED)
torch.set_num_threads(1)
SIZE = 32


class FakeDisk:
    """an in-memory directory tree; names come back in directory order, as os.listdir does on most file systems"""

    def __init__(self, seed):
        self.tree, self.rng = {}, random.Random(seed)

    def write(self, folder, name, arr):
        self.tree.setdefault(folder, {})[name] = arr

    def listdir(self, folder):
        names = list(self.tree[folder])
        self.rng.shuffle(names)
        return names

    def read(self, folder, name):
        return self.tree[folder][name]


def render_slide(rng):
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    mask = np.zeros((SIZE, SIZE), np.float32)
    for _ in range(rng.integers(2, 6)):
        cy, cx = rng.uniform(3, SIZE - 3, 2)
        ry, rx = rng.uniform(2.5, 6, 2)
        mask[((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1] = 1
    stain = rng.uniform(0.35, 0.6)
    base = np.array([0.85, 0.65, 0.8])[:, None, None]
    img = base - stain * mask[None] * np.array([0.7, 0.6, 0.2])[:, None, None]
    img = img + 0.1 * rng.standard_normal((3, SIZE, SIZE)) + 0.05 * np.sin(xx / 5 + rng.uniform(0, 6))
    return img.astype(np.float32), mask


class NucleiDataset(Dataset):
    def __init__(self, disk, root, augment=False):
        self.disk, self.root, self.augment = disk, root, augment
        images = disk.listdir(f"{root}/images")
        masks = disk.listdir(f"{root}/masks")
        if VARIANT == "fixed":
            images, masks = sorted(images), sorted(masks)
        self.items = list(zip(images, masks))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        name_x, name_y = self.items[i]
        x = torch.from_numpy(self.disk.read(f"{self.root}/images", name_x))
        y = torch.from_numpy(self.disk.read(f"{self.root}/masks", name_y))[None]
        if self.augment and random.random() < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        return (x - 0.6) / 0.25, y


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class MiniUNet(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.enc1, self.enc2 = block(3, c), block(c, 2 * c)
        self.bottom = block(2 * c, 2 * c)
        self.dec2, self.dec1 = block(4 * c, c), block(2 * c, c)
        self.head = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        z = self.bottom(F.max_pool2d(b, 2))
        b = self.dec2(torch.cat([F.interpolate(z, scale_factor=2.0), b], 1))
        a = self.dec1(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1))
        return self.head(a)


def bce_dice(logit, y):
    p = torch.sigmoid(logit)
    dice = 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)
    return F.binary_cross_entropy_with_logits(logit, y) + dice


disk, rng = FakeDisk(SEED), np.random.default_rng(SEED)
for split, n in (("train", 160), ("test", 40)):
    for k in range(n):
        img, msk = render_slide(rng)
        disk.write(f"{split}/images", f"TCGA_{k:04d}.png", img)
        disk.write(f"{split}/masks", f"TCGA_{k:04d}_mask.png", msk)

train_set = NucleiDataset(disk, "train", augment=True)
loader = DataLoader(train_set, batch_size=16, shuffle=True)
net = MiniUNet()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, epochs=15, steps_per_epoch=len(loader))

hist = []
for epoch in range(15):
    net.train()
    for x, y in loader:
        opt.zero_grad()
        loss = bce_dice(model(x), y)
        loss.backward()
        opt.step()
        sched.step()
        hist.append(loss.item())
    if epoch % 3 == 2:
        print(f"epoch {epoch + 1} loss {np.mean(hist[-len(loader):]):.4f}")

# held-out slides, looked up by their own names
net.eval()
inter = union = 0.0
with torch.no_grad():
    for name in sorted(disk.tree["test/images"]):
        x = (torch.from_numpy(disk.read("test/images", name)) - 0.6) / 0.25
        y = torch.from_numpy(disk.read("test/masks", name.replace(".png", "_mask.png")))
        p = net(x[None])[0, 0] > 0
        inter += (p & (y > 0)).sum().item()
        union += (p | (y > 0)).sum().item()
iou = inter / max(union, 1)
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-10:])), "metric_name": "test_iou",
                  "metric": iou, "ok": iou > 0.75}))
