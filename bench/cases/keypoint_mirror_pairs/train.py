"""Pose of a mouse seen from above: four landmarks (left/right ear, left/right hind paw), flip augmentation."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)

S = 24
PARTS = ["ear_left", "ear_right", "paw_left", "paw_right"]
MIRROR = [1, 0, 3, 2]


def draw_animals(n, seed):
    r = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:S, 0:S]
    imgs = np.zeros((n, 1, S, S), np.float32)
    pts = np.zeros((n, 4, 2), np.float32)
    local = np.array([[-2.6, -5.5], [2.6, -5.5], [-3.4, 4.5], [3.4, 4.5]])
    for i in range(n):
        t = r.normal(0, 0.35)
        rot = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
        centre = np.array([S / 2, S / 2]) + r.uniform(-3.5, 3.5, 2)
        scale = r.uniform(0.8, 1.1)
        pts[i] = centre + (local * scale) @ rot.T
        d = (np.stack([xx, yy], -1) - centre) @ rot / scale
        img = np.exp(-(d[..., 0] / 2.6) ** 2 - (d[..., 1] / 5.5) ** 2)
        for (px, py), tone in zip(pts[i], (1.0, 1.0, 0.6, 0.6)):
            img += tone * np.exp(-((xx - px) ** 2 + (yy - py) ** 2) / 1.6)
        imgs[i, 0] = img + 0.08 * r.normal(size=(S, S))
    return imgs, pts


class PoseSet(Dataset):
    def __init__(self, imgs, pts, augment):
        self.imgs, self.pts, self.augment = torch.from_numpy(imgs), torch.from_numpy(pts), augment

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        img, pts = self.imgs[i], self.pts[i]
        if self.augment and torch.rand(()) < 0.5:
            img = img.flip(-1)
            pts = torch.stack([S - 1 - pts[:, 0], pts[:, 1]], 1)
            if VARIANT == "fixed":
                pts = pts[MIRROR]
        return img, (pts / (S - 1) * 2 - 1).flatten()


class PoseNet(nn.Sequential):
    def __init__(self):
        def cbr(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        super().__init__(cbr(1, 16), cbr(16, 24), cbr(24, 32), nn.Flatten(), nn.Linear(32 * 9, 64), nn.ReLU(), nn.Linear(64, 8))


def pixel_error(net, x, y):
    net.eval()
    with torch.no_grad():
        d = (net(x) - y).view(-1, 4, 2) * (S - 1) / 2
    net.train()
    return d.norm(dim=-1).mean().item()


train = PoseSet(*draw_animals(1500, SEED + 1), augment=True)
test = PoseSet(*draw_animals(200, SEED + 2), augment=False)
xt, yt = map(torch.stack, zip(*[test[i] for i in range(len(test))]))
net = PoseNet()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
trace = []
for epoch in range(6):
    for x, y in DataLoader(train, batch_size=32, shuffle=True, drop_last=True):
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        trace.append(loss.item())
    print(f"epoch {epoch} loss {np.mean(trace[-46:]):.4f} error {pixel_error(net, xt, yt):.2f} px")

err = pixel_error(net, xt, yt)
print(json.dumps({"loss_first": trace[0], "loss_last": float(np.mean(trace[-20:])), "metric_name": "pixel_error",
                  "metric": err, "ok": err < 1.3}))
