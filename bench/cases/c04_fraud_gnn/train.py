"""Review-spam detection on a synthetic user graph with a two-layer mean-aggregation GNN."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)


def build_graph(n=3000, rate=0.03, d=20, seed=0):
    g = np.random.default_rng(seed)
    y = (g.random(n) < rate).astype(np.int64)
    direction = np.random.default_rng(7).normal(size=d)
    direction /= np.linalg.norm(direction)
    x = g.normal(size=(n, d)) + 1.8 * y[:, None] * direction
    rows, cols = [], []
    fraud = np.flatnonzero(y)
    for i in range(n):
        nb = g.integers(0, n, size=5)
        if y[i]:
            nb[:1] = g.choice(fraud, size=1)
        rows += [i] * 5
        cols += nb.tolist()
    idx = torch.tensor([rows + cols, cols + rows])
    adj = torch.sparse_coo_tensor(idx, torch.ones(idx.size(1)), (n, n)).coalesce()
    deg = torch.sparse.sum(adj, dim=1).to_dense().clamp(min=1)
    return torch.from_numpy(x).float(), torch.from_numpy(y), adj.to_dense() / deg[:, None]


class SAGELayer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.own = nn.Linear(i, o)
        self.neigh = nn.Linear(i, o, bias=False)

    def forward(self, h, a):
        return self.own(h) + self.neigh(a @ h)


class FraudNet(nn.Module):
    def __init__(self, d, hidden=16):
        super().__init__()
        self.conv1 = SAGELayer(d, hidden)
        self.conv2 = SAGELayer(hidden, hidden)
        self.cls = nn.Linear(hidden, 2)

    def forward(self, x, a):
        h = F.dropout(F.relu(self.conv1(x, a)), 0.5, self.training)
        h = F.relu(self.conv2(h, a))
        return self.cls(h)


def report(pred, y):
    rec = [(pred[y == c] == c).float().mean().item() for c in (0, 1)]
    return sum(rec) / 2, rec


def main():
    torch.manual_seed(SEED)
    x, y, adj = build_graph(seed=SEED)
    perm = torch.randperm(len(y))
    train_idx, test_idx = perm[:1800], perm[1800:]
    print("positives in train:", int(y[train_idx].sum()), "of", len(train_idx))
    model = FraudNet(x.size(1))
    if COMPILE:
        model = torch.compile(model, backend=COMPILE)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=5e-3)
    pos = train_idx[y[train_idx] == 1]
    neg = train_idx[y[train_idx] == 0]
    hist = []
    for step in range(100):
        model.train()
        if VARIANT == "fixed":
            take = torch.cat([pos, neg[torch.randperm(len(neg))[:len(pos)]]])
        else:
            take = train_idx[torch.randperm(len(train_idx))[:256]]
        logits = model(x, adj)
        loss = F.cross_entropy(logits[take], y[take])
        opt.zero_grad()
        loss.backward()
        opt.step()
        hist.append(loss.item())
        if step % 25 == 24:
            model.eval()
            with torch.no_grad():
                pred = model(x, adj).argmax(1)
            bal, rec = report(pred[test_idx], y[test_idx])
            acc = (pred[test_idx] == y[test_idx]).float().mean().item()
            print(f"step {step + 1} loss {loss.item():.4f} acc {acc:.3f} recall {rec[0]:.2f}/{rec[1]:.2f}")
    print(json.dumps({"loss_first": hist[0], "loss_last": hist[-1], "metric_name": "balanced_accuracy", "metric": bal, "ok": bal > 0.7}))


main()
