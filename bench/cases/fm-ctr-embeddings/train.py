"""Click prediction with a factorization machine + small deep tower (DeepFM style)."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
from sklearn.metrics import roc_auc_score
from torch.utils.data import DataLoader, TensorDataset

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(seed)
rng = np.random.default_rng(seed)
torch.set_num_threads(1)

FIELDS = [300, 200, 24, 7, 40, 60, 12, 100]
DIM = 32


def simulate_log(n):
    cols = [rng.integers(0, c, n) for c in FIELDS]
    X = np.stack(cols, 1)
    latent = [rng.normal(0, 1, (c, 3)) for c in FIELDS]
    bias = [rng.normal(0, 0.6, c) for c in FIELDS]
    score = sum(b[x] for b, x in zip(bias, cols))
    for i, j in ((0, 1), (0, 4), (1, 2)):
        score = score + 0.5 * (latent[i][cols[i]] * latent[j][cols[j]]).sum(1)
    p = 1 / (1 + np.exp(-1.5 * (score - 0.8)))
    y = (rng.random(n) < p).astype(np.float32)
    return torch.from_numpy(X), torch.from_numpy(y)


class FeatureEmbedding(nn.Module):
    """One big table for all fields, indexed with per-field offsets."""

    def __init__(self, sizes, dim):
        super().__init__()
        self.table = nn.Embedding(sum(sizes), dim)
        offs = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.register_buffer("offsets", torch.tensor(offs, dtype=torch.long))
        if variant == "fixed":
            nn.init.normal_(self.table.weight, std=0.05)

    def forward(self, x):
        return self.table(x + self.offsets)


class DeepFM(nn.Module):
    def __init__(self, sizes, dim, hidden=(64, 32)):
        super().__init__()
        self.embed = FeatureEmbedding(sizes, dim)
        self.first_order = nn.Embedding(sum(sizes), 1)
        nn.init.zeros_(self.first_order.weight)
        self.bias = nn.Parameter(torch.zeros(1))
        layers, d = [], len(sizes) * dim
        for h in hidden:
            layers += [nn.Linear(d, h), nn.ReLU()]
            d = h
        layers.append(nn.Linear(d, 1))
        self.tower = nn.Sequential(*layers)

    def forward(self, x):
        e = self.embed(x)
        linear = self.first_order(x + self.embed.offsets).sum((1, 2))
        inter = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1)
        return self.bias + linear + inter + self.tower(e.flatten(1)).squeeze(1)


X, y = simulate_log(16000)
train_ds = TensorDataset(X[:12800], y[:12800])
Xte, yte = X[12800:], y[12800:]
loader = DataLoader(train_ds, batch_size=128, shuffle=True)

model = DeepFM(FIELDS, DIM)
net = torch.compile(model, backend=backend) if backend else model
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
print("positives: %.3f" % y.mean().item())

history = []
for epoch in range(4):
    model.train()
    running = 0.0
    for xb, yb in loader:
        logit = net(xb)
        loss = criterion(logit, yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        running += loss.item()
    model.eval()
    with torch.no_grad():
        s = model(Xte)
        vl = criterion(s, yte).item()
    auc = roc_auc_score(yte.numpy(), s.numpy())
    print(f"epoch {epoch}  train {running / len(loader):.4f}  valid logloss {vl:.4f}  auc {auc:.4f}")

print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])),
                  "metric_name": "valid_auc", "metric": float(auc), "ok": bool(auc > 0.74)}))
