import json
import os
import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
USERS, ITEMS = 150, 90

if VARIANT == "fixed":
    cfg = dict(dim=64, hidden=128, dropout=0.5, weight_decay=0.5)
else:
    cfg = dict(dim=64, hidden=128, dropout=0.0, weight_decay=0.0)


def reviews(n, seed):
    g = np.random.default_rng(seed)
    bu, bi = g.normal(0, 0.5, USERS), g.normal(0, 0.7, ITEMS)
    pu, qi = g.normal(0, 0.3, (USERS, 2)), g.normal(0, 0.3, (ITEMS, 2))
    u, i = g.integers(0, USERS, n), g.integers(0, ITEMS, n)
    r = 3.6 + bu[u] + bi[i] + (pu[u] * qi[i]).sum(1) + g.normal(0, 0.6, n)
    return torch.tensor(u), torch.tensor(i), torch.tensor(np.clip(r, 1, 5), dtype=torch.float32)


class Tower(nn.Module):
    def __init__(self, n, dim, hidden, dropout):
        super().__init__()
        self.table = nn.Embedding(n, dim)
        nn.init.normal_(self.table.weight, std=0.3)
        self.mlp = nn.Sequential(nn.Dropout(dropout), nn.Linear(dim, hidden), nn.ReLU(), nn.Dropout(dropout))

    def forward(self, ids):
        return self.mlp(self.table(ids))


class PairRegressor(nn.Module):
    def __init__(self, dim, hidden, dropout, mean):
        super().__init__()
        self.left, self.right = Tower(USERS, dim, hidden, dropout), Tower(ITEMS, dim, hidden, dropout)
        self.compare = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 1))
        self.register_buffer("mean", torch.tensor(float(mean)))

    def forward(self, u, i):
        a, b = self.left(u), self.right(i)
        return self.mean + self.compare(torch.cat([a, b, a * b], 1)).squeeze(1)


u, i, r = reviews(2600, SEED)
n_train = 1600
tr, va = slice(0, n_train), slice(n_train, None)
model = PairRegressor(cfg["dim"], cfg["hidden"], cfg["dropout"], r[tr].mean())
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=cfg["weight_decay"])
hist, best = [], float("inf")
for epoch in range(14):
    model.train()
    for idx in torch.randperm(n_train).split(64):
        loss = nn.functional.mse_loss(model(u[idx], i[idx]), r[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        hist.append(loss.item())
    model.eval()
    with torch.no_grad():
        val = nn.functional.mse_loss(model(u[va], i[va]), r[va]).sqrt().item()
    best = min(best, val)
    print(f"epoch {epoch:2d} train mse {np.mean(hist[-25:]):.4f} valid rmse {val:.4f} (best {best:.4f})")

baseline = (r[va] - r[tr].mean()).pow(2).mean().sqrt().item()
ratio = val / baseline
print("constant predictor rmse", round(baseline, 4))
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-20:])), "metric_name": "valid_rmse_over_constant", "metric": ratio, "ok": ratio < 0.72}))
