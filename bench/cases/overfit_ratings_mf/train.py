import json
import math
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
rng = np.random.default_rng(SEED)

N_USERS, N_ITEMS = 260, 180


def simulate_reviews(n_obs=3400):
    """Instrument reviews, 1..5 stars: user and item leniency plus a little taste."""
    ub, ib = 0.55 * rng.standard_normal(N_USERS), 0.6 * rng.standard_normal(N_ITEMS)
    U, V = rng.standard_normal((N_USERS, 3)), rng.standard_normal((N_ITEMS, 3))
    pop = rng.dirichlet(np.ones(N_ITEMS) * 0.8)
    u = rng.integers(0, N_USERS, n_obs)
    i = rng.choice(N_ITEMS, n_obs, p=pop)
    r = 3.6 + ub[u] + ib[i] + 0.25 * (U[u] * V[i]).sum(1) + 0.8 * rng.standard_normal(n_obs)
    return u, i, np.clip(np.round(r), 1, 5).astype(np.float32)


class TwoTower(nn.Module):
    """Pair encoder: each id gets an embedding, compared by a small comparator network."""

    def __init__(self, dim=64, hidden=128):
        super().__init__()
        self.enc0 = nn.Embedding(N_USERS, dim)
        self.enc1 = nn.Embedding(N_ITEMS, dim)
        self.bias0 = nn.Embedding(N_USERS, 1)
        self.bias1 = nn.Embedding(N_ITEMS, 1)
        for e in (self.enc0, self.enc1):
            nn.init.normal_(e.weight, std=0.1)
        nn.init.zeros_(self.bias0.weight); nn.init.zeros_(self.bias1.weight)
        self.comparator = nn.Sequential(nn.Linear(3 * dim, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.mu = nn.Parameter(torch.tensor(3.6))

    def forward(self, u, i):
        a, b = self.enc0(u), self.enc1(i)
        z = self.comparator(torch.cat([a, b, a * b], -1)).squeeze(-1)
        return self.mu + self.bias0(u).squeeze(-1) + self.bias1(i).squeeze(-1) + z


def param_groups(net):
    decay = float(os.environ.get("WD", 3)) if VARIANT == "fixed" else 0.0
    tables = [p for n, p in net.named_parameters() if n.startswith("enc") or n.startswith("comparator")]
    rest = [p for n, p in net.named_parameters() if not (n.startswith("enc") or n.startswith("comparator"))]
    return [{"params": tables, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]


u, i, r = simulate_reviews()
u, i, r = torch.from_numpy(u), torch.from_numpy(i), torch.from_numpy(r)
n_tr = 2400
tr, va = slice(0, n_tr), slice(n_tr, None)

net = TwoTower()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
optimizer = torch.optim.AdamW(param_groups(net), lr=5e-3)
steps_per_epoch = n_tr // 200
hist = []


def rmse(sl):
    with torch.no_grad():
        return math.sqrt(((model(u[sl], i[sl]).clamp(1, 5) - r[sl]) ** 2).mean().item())


for epoch in range(24):
    order = torch.randperm(n_tr)
    for k in range(steps_per_epoch):
        b = order[k * 200:(k + 1) * 200]
        loss = nn.functional.mse_loss(model(u[b], i[b]), r[b])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hist.append(loss.item())
    print(f"epoch {epoch:2d} train rmse {rmse(tr):.3f} validation rmse {rmse(va):.3f}")

# reference: constant, and user + item means
const = math.sqrt(((r[va] - r[tr].mean()) ** 2).mean().item())
val = rmse(va)
print(f"validation rmse {val:.3f}, constant predictor {const:.3f}")
gain = 1 - val / const
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-20:])), "metric_name": "val_gain_over_constant",
                  "metric": gain, "ok": bool(gain > 0.12)}))
