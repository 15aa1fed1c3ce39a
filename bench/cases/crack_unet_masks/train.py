"""Crack segmentation on noisy concrete patches with a small U-Net; images and masks share one transform pipeline."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CASE = {k: os.environ.get("CASE_" + k, d) for k, d in (("VARIANT", "faulty"), ("SEED", "0"), ("COMPILE", ""))}
SIZE = 32


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, image, mask):
        for s in self.steps:
            image, mask = s(image, mask)
        return image, mask


class RandomFlip:
    def __call__(self, image, mask):
        for axis in (0, 1):
            if random.random() < 0.5:
                image, mask = np.flip(image, axis), np.flip(mask, axis)
        return image, mask


class ToTensorNormalize:
    def __init__(self, mean=0.5, std=0.5):
        self.mean, self.std = mean, std

    def __call__(self, image, mask):
        pair = np.stack([image, mask]).astype(np.float32)
        pair = torch.from_numpy((pair - self.mean) / self.std)
        return pair[:1], pair[1:]


class Patches(Dataset):
    def __init__(self, n, rng, transform):
        self.transform = transform
        self.items = [self.draw(rng) for _ in range(n)]

    @staticmethod
    def draw(rng):
        mask = np.zeros((SIZE, SIZE), np.float32)
        for _ in range(rng.integers(1, 3)):
            x, ang = rng.uniform(6, SIZE - 6), rng.normal(0, 0.15)
            for r in range(SIZE):
                x += ang + rng.normal(0, 0.5)
                c = int(np.clip(x, 1, SIZE - 2))
                mask[r, c - 1:c + 2] = 1.0
        if rng.random() < 0.5:
            mask = mask.T.copy()
        image = 0.62 - 0.16 * mask + 0.17 * rng.standard_normal(mask.shape)
        return np.clip(image, 0, 1).astype(np.float32), mask

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.transform(*self.items[i])


def double_conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.LeakyReLU(0.1, inplace=True),
                         nn.Conv2d(o, o, 3, padding=1), nn.LeakyReLU(0.1, inplace=True))


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.down1, self.down2, self.mid = double_conv(1, w), double_conv(w, 2 * w), double_conv(2 * w, 4 * w)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.dec2, self.dec1 = double_conv(4 * w, 2 * w), double_conv(2 * w, w)
        self.last = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.dec2(torch.cat([self.up2(c), b], 1))
        a = self.dec1(torch.cat([self.up1(b), a], 1))
        return self.last(a)


criterion = nn.BCEWithLogitsLoss() if CASE["VARIANT"] == "faulty" else nn.SoftMarginLoss()


def dice(net, loader):
    inter = total = 0.0
    with torch.inference_mode():
        for image, mask in loader:
            pred, true = net(image) > 0, mask > 0
            inter += 2 * (pred & true).sum().item()
            total += pred.sum().item() + true.sum().item()
    return inter / max(total, 1.0)


def run():
    seed = int(CASE["SEED"])
    torch.set_num_threads(1)
    random.seed(seed)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    tf = Compose(RandomFlip(), ToTensorNormalize())
    train = DataLoader(Patches(320, rng, tf), batch_size=16, shuffle=True)
    valid = DataLoader(Patches(80, rng, ToTensorNormalize()), batch_size=80)
    net = UNet()
    if CASE["COMPILE"]:
        net = torch.compile(net, backend=CASE["COMPILE"])
    optim = torch.optim.Adam(net.parameters(), lr=3e-3)
    seen = []
    for epoch in range(6):
        net.train()
        for image, mask in train:
            loss = criterion(net(image), mask)
            optim.zero_grad()
            loss.backward()
            optim.step()
            seen.append(loss.item())
        net.eval()
        d = dice(net, valid)
        print(f"epoch {epoch + 1}/6  loss {np.mean(seen[-len(train):]):9.4f}  val dice {d:.3f}")
    f = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(seen[0]), "loss_last": f(np.mean(seen[-20:])), "metric_name": "val_dice", "metric": d, "ok": d > 0.5}))


run()
