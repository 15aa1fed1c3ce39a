import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")

context = {
    "training_time": {"num_epochs": 12, "initial_lr": 2e-3, "schedule": {"name": "ExponentialLR", "gamma": 0.85}},
    "batch_size": 8,
    "film": True,
    "size": 28,
}


def phantom(n, size, seed):
    """axial slices: bright CSF ring around a darker cord; contrast (T1-like / T2-like) is given as metadata"""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size]
    imgs, masks, contrast = [], [], []
    for _ in range(n):
        c = rng.integers(0, 2)
        cy, cx = rng.uniform(9, size - 9, 2)
        r, ecc = rng.uniform(2.8, 4.5), rng.uniform(0.8, 1.25)
        rr = np.sqrt(((yy - cy) * ecc) ** 2 + ((xx - cx) / ecc) ** 2)
        cord, csf = rr < r, (rr >= r) & (rr < r + 2.2)
        img = 0.25 * np.ones((size, size))
        for _ in range(5):  # muscle and fat blobs of similar brightness
            by, bx = rng.uniform(0, size, 2)
            img += rng.uniform(-0.25, 0.5) * np.exp(-((yy - by) ** 2 + (xx - bx) ** 2) / rng.uniform(5, 25))
        img = np.where(csf, 0.9 if c else 0.05, img)
        img = np.where(cord, 0.45 if c else 0.55, img)
        imgs.append(img + 0.1 * rng.standard_normal((size, size)))
        masks.append(cord)
        contrast.append(c)
    x = torch.tensor(np.stack(imgs), dtype=torch.float32)[:, None]
    x = (x - x.mean((2, 3), keepdim=True)) / x.std((2, 3), keepdim=True)
    return x, torch.tensor(np.stack(masks), dtype=torch.float32)[:, None], torch.tensor(contrast)


class FiLM(nn.Module):
    def __init__(self, n_meta, c):
        super().__init__()
        self.embed = nn.Embedding(n_meta, 2 * c)
        nn.init.zeros_(self.embed.weight)

    def forward(self, h, meta):
        g, b = self.embed(meta)[:, :, None, None].chunk(2, 1)
        return h * (1 + g) + b


class DownConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Conv2d(i, o, 3, padding=1)
        self.gn = nn.GroupNorm(4, o)

    def forward(self, x):
        return F.leaky_relu(self.gn(self.conv(x)), 0.1)


class FiLMedUnet(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.down = nn.ModuleList([DownConv(1, c), DownConv(c, 2 * c)])
        self.mid = DownConv(2 * c, 2 * c)
        self.film = FiLM(2, 2 * c)
        self.up = nn.ModuleList([DownConv(4 * c, c), DownConv(2 * c, c)])
        self.final = nn.Conv2d(c, 1, 1)

    def forward(self, x, meta):
        skips = []
        for d in self.down:
            x = d(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.film(self.mid(x), meta)
        for u in self.up:
            x = u(torch.cat([F.interpolate(x, scale_factor=2.0, mode="nearest"), skips.pop()], 1))
        return torch.sigmoid(self.final(x))


def dice_loss(pred, target, smooth=1.0):
    i = (pred * target).sum((1, 2, 3))
    return -((2 * i + smooth) / (pred.sum((1, 2, 3)) + target.sum((1, 2, 3)) + smooth)).mean()


def cmd_train(ctx):
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    x, y, m = phantom(200, ctx["size"], SEED)
    xv, yv, mv = phantom(60, ctx["size"], SEED + 1000)
    loader = DataLoader(TensorDataset(x, y, m), batch_size=ctx["batch_size"], shuffle=True)
    unet = FiLMedUnet()
    model = torch.compile(unet, backend=COMPILE) if COMPILE else unet
    tt = ctx["training_time"]
    optimizer = torch.optim.Adam(unet.parameters(), lr=tt["initial_lr"])
    scheduler = getattr(lr_scheduler, tt["schedule"]["name"])(optimizer, gamma=tt["schedule"]["gamma"])
    first, best, avg = None, 0.0, None
    for epoch in range(tt["num_epochs"]):
        unet.train()
        total = 0.0
        for xb, yb, mb in loader:
            optimizer.zero_grad()
            loss = dice_loss(model(xb, mb), yb)
            loss.backward()
            optimizer.step()
            if VARIANT == "faulty":
                scheduler.step()
            total += loss.item()
            first = loss.item() if first is None else first
        if VARIANT == "fixed":
            scheduler.step()
        avg = total / len(loader)
        unet.eval()
        with torch.no_grad():
            val = -dice_loss((unet(xv, mv) > 0.5).float(), yv, 1e-3).item()
        best = max(best, val)
        if epoch % 3 == 2:
            print(f"Epoch {epoch + 1} training loss: {avg:.4f}, validation hard dice: {val:.4f}")
    return first, avg, best


first, last, dice = cmd_train(context)
print(json.dumps({"loss_first": first, "loss_last": last, "metric_name": "best_val_dice", "metric": dice,
                  "ok": dice > 0.85}))
