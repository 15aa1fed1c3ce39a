"""Collaborative filtering with a deep autoencoder over user rating vectors (1-5 stars, 0 = unseen)."""
import json
import math
import os
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)


@dataclass
class Config:
    users: int = 1200
    items: int = 240
    layer_sizes: list = field(default_factory=lambda: [240, 96, 48])
    nl: str = "tanh"
    lr: float = 3e-3
    weight_decay: float = 1e-5
    batch_size: int = 64
    epochs: int = 30
    code_dropout: float = 0.1


def make_ratings(cfg, rng):
    u = rng.normal(size=(cfg.users, 4))
    v = rng.normal(size=(cfg.items, 4))
    taste = u @ v.T / 2.0
    bias = rng.normal(0, 0.4, size=(cfg.users, 1)) + rng.normal(0, 0.5, size=(1, cfg.items))
    stars = np.clip(np.rint(3.4 + 0.9 * taste + bias + rng.normal(0, 0.3, taste.shape)), 1, 5)
    coin = rng.random(taste.shape)
    seen = np.where(coin < 0.30, stars, 0)
    held = np.where((coin >= 0.30) & (coin < 0.35), stars, 0)
    return seen.astype(np.float32), held.astype(np.float32)


class UserVectors(Dataset):
    def __init__(self, seen, held):
        self.seen, self.held = torch.from_numpy(seen), torch.from_numpy(held)

    def __len__(self):
        return len(self.seen)

    def __getitem__(self, i):
        return self.seen[i], self.held[i]


def nonlinearity(x, kind):
    if kind == "none":
        return x
    return {"selu": F.selu, "relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}[kind](x)


class RatingAE(nn.Module):
    def __init__(self, layer_sizes, nl, dropout):
        super().__init__()
        pairs = list(zip(layer_sizes[:-1], layer_sizes[1:]))
        self.enc = nn.ModuleList([nn.Linear(a, b) for a, b in pairs])
        self.dec = nn.ModuleList([nn.Linear(b, a) for a, b in reversed(pairs)])
        self.drop = nn.Dropout(dropout)
        self.nl = nl
        self.last = len(layer_sizes) - (2 if VARIANT == "fixed" else 1)
        for lin in [*self.enc, *self.dec]:
            nn.init.xavier_uniform_(lin.weight)
            nn.init.zeros_(lin.bias)

    def forward(self, x):
        for lin in self.enc:
            x = nonlinearity(lin(x), self.nl)
        x = self.drop(x)
        for i, lin in enumerate(self.dec):
            x = nonlinearity(lin(x), self.nl if i != self.last else "none")
        return x


def masked_sse(pred, target):
    mask = (target > 0).float()
    return ((pred - target) * mask).pow(2).sum(), mask.sum()


@torch.no_grad()
def rmse(model, loader):
    model.eval()
    se = n = 0.0
    for seen, held in loader:
        s, c = masked_sse(model(seen), held)
        se, n = se + s.item(), n + c.item()
    model.train()
    return math.sqrt(se / n)


def main(cfg):
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    seen, held = make_ratings(cfg, np.random.default_rng(SEED))
    ds = UserVectors(seen, held)
    train, evl = DataLoader(ds, cfg.batch_size, shuffle=True), DataLoader(ds, 256)
    net = RatingAE(cfg.layer_sizes, cfg.nl, cfg.code_dropout)
    model = torch.compile(net, backend=BACKEND) if BACKEND else net
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    hist = []
    for epoch in range(cfg.epochs):
        for x, _ in train:
            s, n = masked_sse(model(x), x)
            loss = s / n
            opt.zero_grad()
            loss.backward()
            opt.step()
            hist.append(loss.item())
        if epoch % 3 == 0:
            print(f"epoch {epoch:2d}  train rmse {math.sqrt(np.mean(hist[-19:])):.4f}  held-out rmse {rmse(model, evl):.4f}")
    final = rmse(model, evl)
    print(json.dumps({"loss_first": round(hist[0], 4), "loss_last": round(float(np.mean(hist[-10:])), 4),
                      "metric_name": "heldout_rmse", "metric": round(final, 4), "ok": bool(final < 1.05)}))


if __name__ == "__main__":
    main(Config())
