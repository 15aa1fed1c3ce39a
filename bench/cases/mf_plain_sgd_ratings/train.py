"""Biased matrix factorisation of explicit ratings, plain stochastic gradient descent (Funk style)."""
import argparse
import json
import math
import os
import random

import numpy as np
import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--users", type=int, default=500)
ap.add_argument("--items", type=int, default=300)
ap.add_argument("--rank", type=int, default=8)
ap.add_argument("--epochs", type=int, default=14)
ap.add_argument("--bs", type=int, default=128)
ap.add_argument("--lr", type=float, default=0.03)
ap.add_argument("--decay", type=float, default=0.88)
ap.add_argument("--reg", type=float, default=0.04)
args = ap.parse_args([])
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")


class BiasedMF(nn.Module):
    def __init__(self, n_users, n_items, k, mu):
        super().__init__()
        self.P = nn.Embedding(n_users, k)
        self.Q = nn.Embedding(n_items, k)
        self.bu = nn.Embedding(n_users, 1)
        self.bi = nn.Embedding(n_items, 1)
        nn.init.normal_(self.P.weight, std=0.1)
        nn.init.normal_(self.Q.weight, std=0.1)
        nn.init.zeros_(self.bu.weight)
        nn.init.zeros_(self.bi.weight)
        self.register_buffer("mu", torch.tensor(float(mu)))

    def forward(self, u, i):
        p, q, bu, bi = self.P(u), self.Q(i), self.bu(u), self.bi(i)
        r = self.mu + bu.squeeze(1) + bi.squeeze(1) + (p * q).sum(1)
        penalty = (p ** 2).sum() + (q ** 2).sum() + (bu ** 2).sum() + (bi ** 2).sum()
        return r, penalty


def ratings(rng, n=36000):
    U = rng.normal(size=(args.users, 3)) * 0.62
    V = rng.normal(size=(args.items, 3)) * 0.62
    ub, ib = rng.normal(size=args.users) * 0.35, rng.normal(size=args.items) * 0.45
    pop = 1.0 / np.arange(1, args.items + 1) ** 0.7
    pop = rng.permutation(pop / pop.sum())
    u = rng.integers(0, args.users, n)
    i = rng.choice(args.items, n, p=pop)
    _, first = np.unique(u * args.items + i, return_index=True)
    rng.shuffle(first)
    u, i = u[first], i[first]
    r = 3.4 + ub[u] + ib[i] + (U[u] * V[i]).sum(1) * 1.5 + rng.normal(size=len(u)) * 0.25
    return u, i, np.clip(np.round(r * 2) / 2, 0.5, 6.5).astype(np.float32)


def main():
    torch.set_num_threads(1)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    u, i, r = map(torch.from_numpy, ratings(rng))
    cut = int(len(r) * 0.85)
    mf = BiasedMF(args.users, args.items, args.rank, r[:cut].mean())
    net = torch.compile(mf, backend=backend) if backend else mf

    def rmse(lo, hi):
        with torch.no_grad():
            return (net(u[lo:hi], i[lo:hi])[0] - r[lo:hi]).pow(2).mean().sqrt().item()

    start, lr, hist = rmse(cut, len(r)), args.lr, []
    for ep in range(args.epochs):
        order = torch.randperm(cut)
        for chunk in order.split(args.bs):
            pred, pen = net(u[chunk], i[chunk])
            loss = 0.5 * ((pred - r[chunk]) ** 2).sum() + 0.5 * args.reg * pen
            loss.backward()
            with torch.no_grad():
                for p in mf.parameters():
                    p -= lr * p.grad
                    p.grad = None
            hist.append(loss.item())
        lr *= args.decay
        print(f"epoch {ep:2d}  lr {lr:.4f}  objective {np.mean(hist[-50:]):8.3f}  train {rmse(0, cut):.4f}  test {rmse(cut, len(r)):.4f}")

    # additive user/item averages, fitted by alternating means
    bu, bi, mu = torch.zeros(args.users), torch.zeros(args.items), r[:cut].mean()
    tu, ti, tr = u[:cut], i[:cut], r[:cut]
    for _ in range(10):
        bi = torch.zeros(args.items).index_add_(0, ti, tr - mu - bu[tu]) / (torch.bincount(ti, minlength=args.items) + 3)
        bu = torch.zeros(args.users).index_add_(0, tu, tr - mu - bi[ti]) / (torch.bincount(tu, minlength=args.users) + 3)
    additive = (mu + bu[u[cut:]] + bi[i[cut:]] - r[cut:]).pow(2).mean().sqrt().item()
    final = rmse(cut, len(r))
    print(f"test rmse: global mean {start:.4f}, additive {additive:.4f}, factorised {final:.4f}")
    f = lambda v: round(v, 4) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(hist[0]), "loss_last": f(float(np.mean(hist[-50:]))),
                      "metric_name": "test_rmse_over_additive", "metric": f(final / additive), "ok": bool(final < 0.6 * additive)}))


if __name__ == "__main__":
    main()
