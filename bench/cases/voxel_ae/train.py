"""Autoencoder for atom density grids of small ring molecules (two atom channels)."""
import json
import math
import os
import time

import numpy as np
import torch
from torch import nn

CFG = dict(grid=12, atoms=5, n_train=1000, n_valid=300, batch=25, lr=2e-3, epochs=12, fmaps=(8, 24),
           latent=96 if os.environ.get("CASE_VARIANT", "faulty") == "fixed" else 2,
           seed=int(os.environ.get("CASE_SEED", "0")))
torch.set_num_threads(1)
torch.manual_seed(CFG["seed"])


def make_grids(n, seed):
    g = np.random.default_rng(seed)
    axis = np.linspace(-1, 1, CFG["grid"])
    zz, yy, xx = np.meshgrid(axis, axis, axis, indexing="ij")
    out = np.zeros((n, 2, CFG["grid"], CFG["grid"], CFG["grid"]), np.float32)
    for i in range(n):
        radius, tilt = g.uniform(0.4, 0.65), g.normal(0, 0.45, 2)
        phase = g.uniform(0, 2 * math.pi)
        for a in range(CFG["atoms"]):
            t = phase + 2 * math.pi * a / CFG["atoms"]
            p = radius * np.array([math.cos(t), math.sin(t), 0.0])
            p[2] = tilt @ p[:2]
            p += g.normal(0, 0.08, 3)
            kind = int(a % 2)
            d2 = (xx - p[0]) ** 2 + (yy - p[1]) ** 2 + (zz - p[2]) ** 2
            out[i, kind] += np.exp(-d2 / (0.10 if kind else 0.07))
    return torch.from_numpy(out)


def down(cin, cout):
    return nn.Sequential(nn.Conv3d(cin, cout, 3, stride=2, padding=1), nn.LeakyReLU(0.1))


def up(cin, cout, last=False):
    layers = [nn.ConvTranspose3d(cin, cout, 4, stride=2, padding=1)]
    return nn.Sequential(*(layers if last else layers + [nn.LeakyReLU(0.1)]))


class GridAutoencoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        a, b = cfg["fmaps"]
        self.side = cfg["grid"] // 4
        self.b = b
        self.encoder = nn.Sequential(down(2, a), down(a, b), nn.Flatten(), nn.Linear(b * self.side ** 3, cfg["latent"]))
        self.expand = nn.Sequential(nn.Linear(cfg["latent"], b * self.side ** 3), nn.LeakyReLU(0.1))
        self.decoder = nn.Sequential(up(b, a), up(a, 2, last=True))

    def forward(self, x):
        z = self.encoder(x)
        h = self.expand(z).view(-1, self.b, self.side, self.side, self.side)
        return self.decoder(h), z


def batches(data, size, shuffle=True):
    idx = torch.randperm(len(data)) if shuffle else torch.arange(len(data))
    for j in idx.split(size):
        yield data[j]


train, valid = make_grids(CFG["n_train"], CFG["seed"] + 100), make_grids(CFG["n_valid"], CFG["seed"] + 200)
mean = train.mean(0, keepdim=True)
floor = (valid - mean).pow(2).sum(dim=(1, 2, 3, 4)).mean().item()
ae = GridAutoencoder(CFG)
fwd = torch.compile(ae, backend=os.environ["CASE_COMPILE"]) if os.environ.get("CASE_COMPILE") else ae
optimizer = torch.optim.Adam(ae.parameters(), lr=CFG["lr"])
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, CFG["epochs"], eta_min=1e-4)

trace, start = [], time.time()
for epoch in range(CFG["epochs"]):
    for x in batches(train, CFG["batch"]):
        recon, z = fwd(x)
        loss = (recon - x).pow(2).sum(dim=(1, 2, 3, 4)).mean() / floor
        ae.zero_grad()
        loss.backward()
        optimizer.step()
        trace.append(loss.item())
    schedule.step()
    with torch.no_grad():
        rec = np.mean([((fwd(x)[0] - x).pow(2).sum(dim=(1, 2, 3, 4)).mean() / floor).item()
                       for x in batches(valid, CFG["batch"], False)])
    print(f"epoch {epoch + 1:2d} L2 (relative to the mean grid) train {np.mean(trace[-30:]):.4f} valid {rec:.4f} "
          f"z std {z.std().item():.2f} {time.time() - start:.0f}s")

n = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": n(trace[0]), "loss_last": n(np.mean(trace[-30:])), "metric_name": "valid_relative_l2",
                  "metric": n(rec), "ok": bool(rec < 0.4)}))
