import argparse
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)

parser = argparse.ArgumentParser(description="small VDSR")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--weight-decay", type=float, default=1e-4)
parser.add_argument("--clip", type=float, default=0.4 if VARIANT == "fixed" else 1e-4)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch", type=int, default=16)
opt = parser.parse_args([])

torch.manual_seed(SEED)
np.random.seed(SEED)


def textures(n, rng, size=24):
    """High-resolution patches: oriented stripes, checker corners and soft blobs."""
    yy, xx = np.mgrid[0:size, 0:size] / size
    out = np.zeros((n, 1, size, size), np.float32)
    for i in range(n):
        th, f = rng.uniform(0, np.pi), rng.uniform(2, 5)
        wave = np.sin(2 * np.pi * f * (xx * np.cos(th) + yy * np.sin(th)) + rng.uniform(0, 6))
        img = 0.5 + 0.35 * np.tanh(4 * wave)
        cy, cx, r = rng.uniform(0.2, 0.8), rng.uniform(0.2, 0.8), rng.uniform(0.1, 0.3)
        disc = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
        out[i, 0] = np.where(disc, rng.uniform(0, 1), img)
    return torch.from_numpy(out)


def degrade(hr, scale=2):
    lr = F.interpolate(hr, scale_factor=1 / scale, mode="area")
    return F.interpolate(lr, scale_factor=scale, mode="bicubic", align_corners=False)


class ConvReLU(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.conv = nn.Conv2d(ch, ch, 3, padding=1, bias=False)

    def forward(self, x):
        return F.relu(self.conv(x))


class VDSR(nn.Module):
    def __init__(self, ch=16, depth=4):
        super().__init__()
        self.input = nn.Conv2d(1, ch, 3, padding=1, bias=False)
        self.residual_layer = nn.Sequential(*[ConvReLU(ch) for _ in range(depth)])
        self.output = nn.Conv2d(ch, 1, 3, padding=1, bias=False)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                fan = m.kernel_size[0] * m.kernel_size[1] * m.out_channels
                nn.init.normal_(m.weight, std=(2.0 / fan) ** 0.5)
        nn.init.normal_(self.output.weight, std=0.01)

    def forward(self, x):
        return x + self.output(self.residual_layer(F.relu(self.input(x))))


def adjust_lr(optimizer, epoch):
    lr = opt.lr * (0.3 ** (epoch // 5))
    for g in optimizer.param_groups:
        g["lr"] = lr
    return lr


def psnr(a, b):
    return (-10 * torch.log10((a - b).pow(2).mean(dim=(1, 2, 3)))).mean().item()


rng = np.random.default_rng(SEED)
hr_train, hr_test = textures(384, rng), textures(64, rng)
lr_train, lr_test = degrade(hr_train), degrade(hr_test)

net = VDSR()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
criterion = nn.MSELoss(reduction="sum")
optimizer = torch.optim.SGD(net.parameters(), lr=opt.lr, momentum=opt.momentum, weight_decay=opt.weight_decay)

hist = []
for epoch in range(opt.epochs):
    lr = adjust_lr(optimizer, epoch)
    perm = torch.randperm(len(hr_train))
    for i in range(0, len(perm), opt.batch):
        idx = perm[i:i + opt.batch]
        loss = criterion(model(lr_train[idx]), hr_train[idx]) / len(idx)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), opt.clip)
        optimizer.step()
        hist.append(loss.item())
    print(f"===> Epoch[{epoch}] lr {lr:.4f} loss {np.mean(hist[-len(perm) // opt.batch:]):.4f}")

with torch.no_grad():
    base, ours = psnr(lr_test, hr_test), psnr(net(lr_test), hr_test)
print(f"PSNR bicubic {base:.2f} dB, network {ours:.2f} dB")
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-10:])),
                  "metric_name": "psnr_gain_db", "metric": ours - base, "ok": ours - base > 1.0}))
