"""Centre-point detector for bright lamps in night frames; frames with faint reflections only must stay silent."""
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
SIZE = 20


class NightFrames(Dataset):
    def __init__(self, n, rng):
        yy, xx = np.mgrid[0:SIZE, 0:SIZE]
        self.x, self.heat, self.centres = [], [], []
        for _ in range(n):
            img = rng.normal(0, 0.08, (SIZE, SIZE))
            heat = np.zeros((SIZE, SIZE))
            pts = []
            lit = rng.random() < 0.3
            for _ in range(rng.integers(1, 4)):
                r, c = rng.integers(3, SIZE - 3, 2)
                img += rng.uniform(1.6, 2.2) * np.exp(-((yy - r) ** 2 + (xx - c) ** 2) / 3.0)
                if lit:
                    heat = np.maximum(heat, np.exp(-((yy - r) ** 2 + (xx - c) ** 2) / 1.2))
                    pts.append((r, c))
            img *= rng.uniform(0.9, 1.1) if lit else rng.uniform(0.2, 0.35)
            self.x.append(img[None])
            self.heat.append(heat[None])
            self.centres.append(pts)
        self.x = torch.tensor(np.array(self.x), dtype=torch.float32)
        self.heat = torch.tensor(np.array(self.heat), dtype=torch.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.heat[i]


def conv_bn(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o, momentum=0.1), nn.ReLU(inplace=True))


class CentreNet(nn.Module):
    def __init__(self, ch=12):
        super().__init__()
        self.body = nn.Sequential(conv_bn(1, ch), conv_bn(ch, ch), conv_bn(ch, ch))
        self.heat = nn.Conv2d(ch, 1, 1)
        nn.init.constant_(self.heat.bias, -3.0)

    def forward(self, x):
        return self.heat(self.body(x))


def focal(logit, target, alpha=2.0, beta=4.0):
    p = logit.sigmoid().clamp(1e-4, 1 - 1e-4)
    pos = (target > 0.99).float()
    loss = -pos * (1 - p) ** alpha * p.log() - (1 - pos) * (1 - target) ** beta * p ** alpha * (1 - p).log()
    return loss.sum() / pos.sum().clamp(min=1)


class Predictor:
    """Runs the detector on one frame at a time, as the camera delivers them."""

    def __init__(self, net, threshold=0.4):
        self.net, self.threshold = net, threshold
        if VARIANT == "fixed":
            self.net.eval()

    @torch.no_grad()
    def __call__(self, frame):
        p = self.net(frame[None]).sigmoid()[0, 0]
        peak = F.max_pool2d(p[None, None], 3, 1, 1)[0, 0]
        return torch.nonzero((p == peak) & (p > self.threshold)).tolist()


def f1_score(net, data):
    predictor, tp, fp, fn = Predictor(net), 0, 0, 0
    for frame, truth in zip(data.x, data.centres):
        left = list(truth)
        for r, c in predictor(frame):
            hit = next((t for t in left if abs(t[0] - r) + abs(t[1] - c) <= 2), None)
            if hit is None:
                fp += 1
            else:
                tp += 1
                left.remove(hit)
        fn += len(left)
    return 2 * tp / max(1, 2 * tp + fp + fn), tp, fp, fn


def fit(net, loader, epochs, lr):
    opt = torch.optim.Adam(net.parameters(), lr=lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, lr, total_steps=epochs * len(loader))
    run = torch.compile(net, backend=BACKEND) if BACKEND else net
    hist = []
    for epoch in range(epochs):
        net.train()
        for x, heat in loader:
            loss = focal(run(x), heat)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            hist.append(loss.item())
        print(f"epoch {epoch:2d}  focal loss {np.mean(hist[-len(loader):]):.4f}")
    return hist


if __name__ == "__main__":
    torch.set_num_threads(1)
    random.seed(SEED)
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    train_set, test_set = NightFrames(640, rng), NightFrames(250, rng)
    net = CentreNet()
    hist = fit(net, DataLoader(train_set, batch_size=32, shuffle=True), epochs=10, lr=8e-3)
    f1, tp, fp, fn = f1_score(net, test_set)
    print(f"F1 {f1:.3f}  (found {tp}, false {fp}, missed {fn})")
    fin = lambda v: round(v, 4) if math.isfinite(v) else None
    print(json.dumps({"loss_first": fin(hist[0]), "loss_last": fin(float(np.mean(hist[-20:]))), "metric_name": "f1",
                      "metric": fin(f1), "ok": bool(f1 > 0.8)}))
