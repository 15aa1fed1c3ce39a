import argparse
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn

p = argparse.ArgumentParser(description="explicit-feedback matrix factorisation")
p.add_argument("--users", type=int, default=400)
p.add_argument("--items", type=int, default=250)
p.add_argument("--density", type=float, default=0.3)
p.add_argument("--rank", type=int, default=3 if os.environ.get("CASE_VARIANT") == "fixed" else 64)
p.add_argument("--lr", type=float, default=0.003)
p.add_argument("--epochs", type=int, default=30)
p.add_argument("--batch", type=int, default=128)
p.add_argument("--seed", type=int, default=int(os.environ.get("CASE_SEED", "0")))
args = p.parse_args([])

torch.set_num_threads(1)
torch.manual_seed(args.seed)
rs = np.random.RandomState(args.seed)

# ratings: biases + a few tastes + noise, rounded to half stars
taste, genre = rs.randn(args.users, 3), rs.randn(args.items, 3)
full = 3.4 + 0.35 * rs.randn(args.users, 1) + 0.4 * rs.randn(1, args.items) + 0.42 * taste @ genre.T
full = np.clip(np.round(2 * (full + 1.0 * rs.randn(*full.shape))) / 2, 0.5, 5.0)
uu, ii = np.nonzero(rs.rand(*full.shape) < args.density)
order = rs.permutation(len(uu))
uu, ii, rr = (torch.as_tensor(a[order]) for a in (uu, ii, full[uu, ii].astype(np.float32)))
cut = int(0.8 * len(uu))


class FactorModel(nn.Module):
    def __init__(self, n_users, n_items, rank, mean):
        super().__init__()
        self.P = nn.Embedding(n_users, rank)
        self.Q = nn.Embedding(n_items, rank)
        self.bu = nn.Embedding(n_users, 1)
        self.bi = nn.Embedding(n_items, 1)
        self.mean = mean
        for table in (self.P, self.Q):
            nn.init.normal_(table.weight, std=0.1)
        for table in (self.bu, self.bi):
            nn.init.zeros_(table.weight)

    def forward(self, u, i):
        return self.mean + self.bu(u).squeeze(-1) + self.bi(i).squeeze(-1) + (self.P(u) * self.Q(i)).sum(-1)


model = FactorModel(args.users, args.items, args.rank, rr[:cut].mean().item())
net = torch.compile(model, backend=os.environ["CASE_COMPILE"]) if os.environ.get("CASE_COMPILE") else model
optim = torch.optim.Adam([
    {"params": [model.P.weight, model.Q.weight]},
    {"params": [model.bu.weight, model.bi.weight]},
], lr=args.lr)


def rmse(lo, hi):
    with torch.no_grad():
        return (net(uu[lo:hi], ii[lo:hi]) - rr[lo:hi]).square().mean().sqrt().item()


base = (rr[cut:] - model.mean).square().mean().sqrt().item()
print(f"{cut} train / {len(uu) - cut} test ratings, constant predictor rmse {base:.3f}")
first = last = None
for epoch in range(1, args.epochs + 1):
    total = 0.0
    shuffle = torch.randperm(cut)
    for j in shuffle.split(args.batch):
        err = net(uu[j], ii[j]) - rr[j]
        loss = (err ** 2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        total += loss.item() * len(j)
        first = loss.item() if first is None else first
    last = total / cut
    if epoch % 3 == 0:
        print(f"epoch {epoch:3d}  train rmse {math.sqrt(last):.4f}  test rmse {rmse(cut, len(uu)):.4f}")

final = rmse(cut, len(uu))
print(json.dumps({"loss_first": first, "loss_last": last, "metric_name": "test_rmse_over_constant",
                  "metric": round(final / base, 4), "ok": final / base < 0.9}))
