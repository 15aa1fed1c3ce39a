"""Explicit-feedback recommender: biased matrix factorisation on instrument ratings."""
import json
import os

import numpy as np
import torch
import torch.nn as nn

MODE = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)
N_USERS, N_ITEMS, PER_USER = 300, 120, 12


def ratings(seed):
    g = np.random.default_rng(seed)
    pu, qi = g.normal(size=(N_USERS, 3)), g.normal(size=(N_ITEMS, 3))
    bu, bi = 0.4 * g.normal(size=N_USERS), 0.5 * g.normal(size=N_ITEMS)
    rows = []
    for u in range(N_USERS):
        for i in g.choice(N_ITEMS, PER_USER, replace=False):
            r = 3.4 + bu[u] + bi[i] + 0.35 * pu[u] @ qi[i] + 0.6 * g.normal()
            rows.append((u, i, float(np.clip(np.round(r * 2) / 2, 1, 5))))
    g.shuffle(rows)
    t = torch.tensor(rows)
    return t[:, 0].long(), t[:, 1].long(), t[:, 2]


class Recommender(nn.Module):
    def __init__(self, dim, mean):
        super().__init__()
        self.user = nn.Embedding(N_USERS, dim)
        self.item = nn.Embedding(N_ITEMS, dim)
        self.user_bias = nn.Embedding(N_USERS, 1)
        self.item_bias = nn.Embedding(N_ITEMS, 1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.2)
        for table in (self.user_bias, self.item_bias):
            nn.init.zeros_(table.weight)
        self.register_buffer("mean", torch.tensor(mean))

    def forward(self, u, i):
        dot = (self.user(u) * self.item(i)).sum(-1)
        return self.mean + dot + self.user_bias(u).squeeze(-1) + self.item_bias(i).squeeze(-1)


u, i, r = ratings(SEED)
cut = int(0.8 * len(r))
tr, va = slice(0, cut), slice(cut, None)
model = Recommender(48, float(r[tr].mean()))
if BACKEND:
    model = torch.compile(model, backend=BACKEND, dynamic=True)
decay = 0.3 if MODE == "fixed" else 0.0
opt = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=decay * 10)
mse = nn.MSELoss()
baseline = ((r[va] - r[tr].mean()) ** 2).mean().sqrt().item()
hist = []
for epoch in range(25):
    model.train()
    for idx in torch.randperm(cut).split(256):
        loss = mse(model(u[tr][idx], i[tr][idx]), r[tr][idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        hist.append(loss.item())
    model.eval()
    with torch.no_grad():
        val_loss = mse(model(u[va], i[va]), r[va]).item()
    if epoch % 4 == 0 or epoch == 24:
        print(f"epoch {epoch:2d} train {np.mean(hist[-15:]):.3f} val {val_loss:.3f}")
rmse = val_loss ** 0.5
print(f"global mean predictor RMSE {baseline:.3f}")
print(json.dumps({"loss_first": hist[0], "loss_last": hist[-1], "metric_name": "val_rmse_over_baseline", "metric": rmse / baseline,
                  "ok": rmse < 0.9 * baseline}))
