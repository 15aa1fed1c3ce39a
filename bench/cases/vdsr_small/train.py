# Super-resolution by residual learning: predict the detail missing from a bicubic-like upsampled patch.
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")

cfg = dict(lr=0.1, momentum=0.9, weight_decay=1e-4, clip=0.4 if VARIANT == "fixed" else 0.0004, batch=16, iters=200, depth=5,
           width=12, patch=16)


def seed_all():
    torch.set_num_threads(1)
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


def textures(n, size):
    yy, xx = np.mgrid[0:size, 0:size] / size
    out = []
    for _ in range(n):
        img = np.zeros((size, size))
        for _ in range(3):
            fx, fy = np.random.uniform(-4, 4, 2)
            img += np.random.uniform(0.2, 0.5) * np.sign(np.sin(2 * math.pi * (fx * xx + fy * yy) + np.random.uniform(0, 6)))
        out.append(img)
    return torch.tensor(np.stack(out), dtype=torch.float32).unsqueeze(1)


def degrade(hr):
    lr = F.avg_pool2d(hr, 2)
    return F.interpolate(lr, scale_factor=2, mode="bilinear", align_corners=False)


class ConvReLU(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.conv = nn.Conv2d(ch, ch, 3, padding=1, bias=False)

    def forward(self, x):
        return F.relu(self.conv(x))


class VDSR(nn.Module):
    def __init__(self, depth, width):
        super().__init__()
        self.input = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.residual_layer = nn.Sequential(*[ConvReLU(width) for _ in range(depth - 2)])
        self.output = nn.Conv2d(width, 1, 3, padding=1, bias=False)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.normal_(m.weight, 0.0, math.sqrt(2.0 / (9 * m.out_channels)))

    def forward(self, x):
        return x + self.output(self.residual_layer(F.relu(self.input(x))))


def psnr_gain(model, hr):
    lr = degrade(hr)
    with torch.no_grad():
        mse = F.mse_loss(model(lr), hr).item()
    base = F.mse_loss(lr, hr).item()
    return 10 * math.log10(base / mse) if mse > 0 and math.isfinite(mse) else float("nan")


def main():
    seed_all()
    train, test = textures(300, cfg["patch"]), textures(60, cfg["patch"])
    net = VDSR(cfg["depth"], cfg["width"])
    model = torch.compile(net, backend=BACKEND) if BACKEND else net
    opt = torch.optim.SGD(net.parameters(), lr=cfg["lr"], momentum=cfg["momentum"], weight_decay=cfg["weight_decay"])
    losses = []
    for it in range(cfg["iters"]):
        hr = train[torch.randint(0, len(train), (cfg["batch"],))]
        loss = F.mse_loss(model(degrade(hr)), hr)
        opt.zero_grad()
        loss.backward()
        clip_grad_norm_(net.parameters(), cfg["clip"])
        opt.step()
        losses.append(loss.item())
        if it % 25 == 0:
            print(f"===> iter {it:4d}: loss {loss.item():.5f}  psnr gain {psnr_gain(model, test):+.2f} dB")
    gain = psnr_gain(model, test)
    r = lambda v: round(v, 5) if math.isfinite(v) else None
    print(json.dumps({"loss_first": r(losses[0]), "loss_last": r(float(np.mean(losses[-10:]))), "metric_name": "psnr_gain_db",
                      "metric": r(gain), "ok": bool(math.isfinite(gain) and gain > 0.8)}))


if __name__ == "__main__":
    main()
