"""Two-tower retrieval on implicit feedback (BPR, sampled negatives), with history pooling on the user side."""
import json
import os
import random

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)

CFG = dict(
    n_users=400, n_items=300, n_groups=10, dim=24, hist=8, batch=512, steps=300,
    optimizer=dict(lr=5e-3, betas=(0.9, 0.999), eps=0.1 if VARIANT == "faulty" else 1e-8),
)


class Interactions:
    """Users have two favourite groups of items; 85 % of what they consume comes from these."""

    def __init__(self, cfg, rng):
        self.cfg, self.rng = cfg, rng
        group = rng.integers(0, cfg["n_groups"], cfg["n_items"])
        pools = [np.flatnonzero(group == g) for g in range(cfg["n_groups"])]
        self.train, self.test = [], []
        for _ in range(cfg["n_users"]):
            fav = rng.choice(cfg["n_groups"], 2, replace=False)
            seen = []
            while len(seen) < 22:
                if rng.random() < 0.85:
                    it = int(rng.choice(pools[fav[rng.integers(2)]]))
                else:
                    it = int(rng.integers(cfg["n_items"]))
                if it not in seen:
                    seen.append(it)
            self.train.append(seen[:18])
            self.test.append(seen[18:])
        self.train = np.array(self.train)
        self.test = np.array(self.test)

    def batch(self, n):
        u = self.rng.integers(0, self.cfg["n_users"], n)
        order = np.argsort(self.rng.random((n, 18)), 1)
        picked = np.take_along_axis(self.train[u], order[:, : self.cfg["hist"] + 1], 1)
        neg = self.rng.integers(0, self.cfg["n_items"], n)
        return [torch.from_numpy(a) for a in (u, picked[:, 1:], picked[:, 0], neg)]


class Tower(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_in, 2 * d_out), nn.ReLU(), nn.Linear(2 * d_out, d_out))

    def forward(self, x):
        return self.net(x)


class TwoTower(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg["dim"]
        self.user_id = nn.Embedding(cfg["n_users"], d)
        self.item_id = nn.Embedding(cfg["n_items"], d)
        for e in (self.user_id, self.item_id):
            nn.init.normal_(e.weight, std=0.1)
        self.item_bias = nn.Parameter(torch.zeros(cfg["n_items"]))
        self.user_tower = Tower(2 * d, d)
        self.item_tower = Tower(d, d)

    def user(self, u, hist):
        return self.user_tower(torch.cat([self.user_id(u), self.item_id(hist).mean(1)], -1))

    def item(self, i):
        return self.item_tower(self.item_id(i)), self.item_bias[i]

    def forward(self, u, hist, pos, neg):
        z = self.user(u, hist)
        (p, bp), (n, bn) = self.item(pos), self.item(neg)
        return (z * p).sum(-1) + bp, (z * n).sum(-1) + bn


@torch.no_grad()
def ranking_auc(model, data):
    model.eval()
    users = torch.arange(data.cfg["n_users"])
    z = model.user(users, torch.from_numpy(data.train))
    v, b = model.item(torch.arange(data.cfg["n_items"]))
    scores = (z @ v.T + b).numpy()
    aucs = []
    for u in range(len(scores)):
        rest = np.ones(data.cfg["n_items"], bool)
        rest[data.train[u]] = False
        rest[data.test[u]] = False
        s_neg = scores[u, rest]
        for t in data.test[u]:
            aucs.append((scores[u, t] > s_neg).mean() + 0.5 * (scores[u, t] == s_neg).mean())
    model.train()
    return float(np.mean(aucs))


def main():
    data = Interactions(CFG, np.random.default_rng(SEED))
    model = TwoTower(CFG)
    step_model = torch.compile(model, backend=BACKEND) if BACKEND else model
    optimizer = torch.optim.Adam(model.parameters(), **CFG["optimizer"])
    hist = []
    for step in range(CFG["steps"]):
        pos, neg = step_model(*data.batch(CFG["batch"]))
        loss = -F.logsigmoid(pos - neg).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hist.append(loss.item())
        if step % 50 == 0:
            print(f"[{step:3d}] bpr {np.mean(hist[-20:]):.4f}  auc {ranking_auc(model, data):.3f}")
    auc = ranking_auc(model, data)
    print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-10:])),
                      "metric_name": "held_out_auc", "metric": auc, "ok": auc > 0.7}))


main()
