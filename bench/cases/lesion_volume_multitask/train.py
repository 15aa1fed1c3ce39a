"""Scan patch -> lesion volume (mm^3) and margin type (smooth / spiculated), two heads on one trunk."""
import argparse
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    def __init__(self, n, rng, px=24, spacing=2.0):
        yy, xx = np.mgrid[0:px, 0:px]
        self.radius = rng.uniform(6, 21, n)                      # mm
        self.kind = rng.integers(0, 2, n)
        self.volume = 4 / 3 * np.pi * self.radius ** 3            # mm^3
        img = np.empty((n, 1, px, px), np.float32)
        for i in range(n):
            cy, cx = rng.uniform(px / 2 - 1.5, px / 2 + 1.5, 2)
            d = np.hypot(yy - cy, xx - cx) * spacing
            a = np.arctan2(yy - cy, xx - cx)
            edge = self.radius[i] * (1 + self.kind[i] * 0.3 * np.cos(6 * a + rng.uniform(0, 6)))
            img[i, 0] = 1 / (1 + np.exp((d - edge) / 1.2))
        img += rng.normal(0, 0.08, img.shape).astype(np.float32)
        self.img = (img - 0.4) / 0.45

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        return torch.from_numpy(self.img[i]), torch.tensor(self.volume[i], dtype=torch.float32), int(self.kind[i])


class LesionNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(w, 2 * w, 3, padding=1), nn.BatchNorm2d(2 * w), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(2 * w, 2 * w, 3, padding=1), nn.BatchNorm2d(2 * w), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(2 * w * 9, 48), nn.ReLU())
        self.volume = nn.Linear(48, 1)
        self.margin = nn.Linear(48, 2)

    def forward(self, x):
        h = self.trunk(x)
        return self.volume(h).squeeze(-1), self.margin(h)


def evaluate(model, loader, shift, scale):
    model.eval()
    pv, tv, hit = [], [], 0
    with torch.no_grad():
        for img, vol, kind in loader:
            v, m = model(img)
            pv.append(v * scale + shift)
            tv.append(vol)
            hit += (m.argmax(1) == kind).sum().item()
    model.train()
    pv, tv = torch.cat(pv), torch.cat(tv)
    r2 = 1 - ((pv - tv) ** 2).sum() / ((tv - tv.mean()) ** 2).sum()
    return r2.item(), (pv - tv).abs().mean().item(), hit / len(tv)


def main(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    train_set, val_set = Patches(960, rng), Patches(240, rng)
    train = DataLoader(train_set, batch_size=args.batch, shuffle=True)
    val = DataLoader(val_set, batch_size=80)
    shift, scale = 0.0, 1.0
    if args.variant == "fixed":
        shift, scale = float(train_set.volume.mean()), float(train_set.volume.std())
    net = LesionNet()
    model = torch.compile(net, backend=args.compile) if args.compile else net
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))
    curve = []
    for epoch in range(args.epochs):
        for img, vol, kind in train:
            v, m = model(img)
            loss_v = F.mse_loss(v, (vol - shift) / scale)
            loss_m = F.cross_entropy(m, kind)
            loss = loss_v + args.margin_weight * loss_m
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            curve.append(loss.item())
        r2, mae, acc = evaluate(model, val, shift, scale)
        print(f"epoch {epoch} volume loss {loss_v.item():.4g} margin loss {loss_m.item():.4f} | val R2 {r2:.3f} "
              f"MAE {mae:.0f} mm3 margin acc {acc:.3f}")
    fin = lambda x: float(x) if math.isfinite(x) else None
    print(json.dumps({"loss_first": fin(curve[0]), "loss_last": fin(np.mean(curve[-10:])), "metric_name": "val_volume_r2",
                      "metric": fin(r2), "ok": bool(r2 > 0.85 and acc > 0.9)}))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=7)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--margin-weight", type=float, default=1.0)
    ap.add_argument("--variant", default=os.environ.get("CASE_VARIANT", "faulty"))
    ap.add_argument("--seed", type=int, default=int(os.environ.get("CASE_SEED", "0")))
    ap.add_argument("--compile", default=os.environ.get("CASE_COMPILE", ""))
    main(ap.parse_args())
