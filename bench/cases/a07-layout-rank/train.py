"""Rank compiler layouts by predicted runtime (pairwise hinge inside one graph), features straight from the graph dump."""
import json
import math
import os

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
torch.set_num_threads(1)

CONFIGS = 12  # candidate layouts per graph


def dump_graphs(n, rng):
    """per graph: op histogram, tensor extents and bytes; per config: tile sizes, padding, flags"""
    graphs = []
    for _ in range(n):
        dims = 2.0 ** rng.integers(3, 11, 3)
        nbytes = dims.prod() * 4
        ops = rng.integers(0, 40, 4).astype(float)
        node = np.concatenate([dims, [nbytes / 1024], ops])
        tile = 2.0 ** rng.integers(0, 8, (CONFIGS, 2))
        major = rng.integers(0, 2, (CONFIGS, 3)).astype(float)
        pad = rng.integers(0, 128, (CONFIGS, 1)).astype(float)
        cost = (0.6 * np.abs(np.log2(tile[:, 0]) - 4) + 0.5 * np.abs(np.log2(tile[:, 1]) - np.log2(dims[1]) + 3)
                + 1.2 * major[:, 0] * (ops[0] > 20) - 1.0 * major[:, 1] + 0.012 * pad[:, 0])
        cost = cost + 0.05 * rng.standard_normal(CONFIGS)
        feats = np.concatenate([np.repeat(node[None], CONFIGS, 0), tile, major, pad], 1)
        graphs.append((feats.astype(np.float32), cost.astype(np.float32)))
    return graphs


class LayoutDataset(Dataset):
    def __init__(self, graphs, scaler=None):
        self.graphs, self.scaler = graphs, scaler

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        x, y = self.graphs[i]
        if self.scaler is not None:
            lo, hi = self.scaler
            x = (np.log1p(x) - lo) / np.maximum(hi - lo, 1e-6)
        return torch.from_numpy(np.ascontiguousarray(x, np.float32)), torch.from_numpy(y)


def fit_minmax(graphs):
    allx = np.log1p(np.concatenate([g[0] for g in graphs]))
    return allx.min(0), allx.max(0)


class LayoutNet(nn.Module):
    def __init__(self, n_feat, width=64):
        super().__init__()
        self.proj = nn.Sequential(nn.Linear(n_feat, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.attn = nn.MultiheadAttention(width, 4, batch_first=True)
        self.out = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x):
        h = self.proj(x)
        c, _ = self.attn(h, h, h, need_weights=False)
        return self.out(torch.cat([h, c], -1)).squeeze(-1)


def pair_hinge(score, runtime, margin=0.5):
    diff = score[:, :, None] - score[:, None]
    slower = (runtime[:, :, None] > runtime[:, None] + 0.1).float()
    return (F.relu(margin - diff) * slower).sum() / slower.sum().clamp(min=1)


@torch.no_grad()
def kendall(model, loader):
    good = total = 0.0
    for x, y in loader:
        s = model(x)
        a = torch.sign(s[:, :, None] - s[:, None])
        b = torch.sign(y[:, :, None] - y[:, None])
        good += (a * b).sum().item()
        total += b.abs().sum().item()
    return good / total


rng = np.random.default_rng(SEED)
train_graphs, val_graphs = dump_graphs(600, rng), dump_graphs(120, rng)
scaler = fit_minmax(train_graphs) if VARIANT == "fixed" else None
train_loader = DataLoader(LayoutDataset(train_graphs, scaler), batch_size=32, shuffle=True, drop_last=True)
val_loader = DataLoader(LayoutDataset(val_graphs, scaler), batch_size=60)

net = LayoutNet(train_graphs[0][0].shape[1])
model = torch.compile(net, backend=COMPILE) if COMPILE else net
opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
total = 16 * len(train_loader)
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: min(1.0, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * min(s, total) / total)))

losses = []
for epoch in range(16):
    for x, y in train_loader:
        loss = pair_hinge(model(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        losses.append(loss.item())
    if epoch % 4 == 3:
        print({"epoch": epoch + 1, "loss": round(float(np.mean(losses[-18:])), 4), "tau": round(kendall(net, val_loader), 3)})

tau = kendall(net, val_loader)
fin = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(np.mean(losses[-18:])), "metric_name": "kendall_tau",
                  "metric": fin(tau), "ok": bool(tau > 0.75)}))
