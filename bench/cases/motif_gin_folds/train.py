# Graph isomorphism network on random graphs: tell the generator family from the structure.
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
BACKEND = os.environ.get("CASE_COMPILE", "")
N_NODES, N_CLASSES = 18, 3


def make_graph(kind, rng):
    n = int(rng.integers(12, N_NODES + 1))
    a = np.zeros((N_NODES, N_NODES), dtype=np.float32)
    if kind == 0:                                   # ring with chords
        for i in range(n):
            a[i, (i + 1) % n] = 1
        for _ in range(n // 3):
            i, j = rng.choice(n, 2, replace=False)
            a[i, j] = 1
    elif kind == 1:                                 # preferential attachment
        deg = np.ones(n)
        for i in range(1, n):
            for _ in range(1 + (rng.random() < 0.33)):
                p = deg[:i] / deg[:i].sum()
                j = int(rng.choice(i, p=p))
                a[i, j] = 1
                deg[i] += 1
                deg[j] += 2
    else:                                           # two dense groups
        half = n // 2
        for i in range(n):
            for j in range(i):
                same = (i < half) == (j < half)
                if rng.random() < (0.28 if same else 0.02):
                    a[i, j] = 1
    a = np.maximum(a, a.T)
    np.fill_diagonal(a, 0)
    return a, np.arange(N_NODES) < n


class GINLayer(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(d_in, d_out), nn.ReLU(), nn.Linear(d_out, d_out))

    def forward(self, h, adj, mask):
        agg = (1 + self.eps) * h + adj @ h / 2
        return F.relu(self.mlp(agg)) * mask


class GraphNet(nn.Module):
    def __init__(self, d=32, layers=3):
        super().__init__()
        self.embed = nn.Embedding(10, d)
        self.convs = nn.ModuleList([GINLayer(d, d) for _ in range(layers)])
        self.readout = nn.Linear(d * layers, N_CLASSES)

    def forward(self, adj, mask):
        m = mask.unsqueeze(-1).float()
        h = self.embed(adj.sum(-1).long().clamp(max=9)) * m
        pooled = []
        for conv in self.convs:
            h = conv(h, adj, m)
            pooled.append(h.sum(1) / m.sum(1))
        return self.readout(torch.cat(pooled, -1))


class Runner:
    def __init__(self, model, lr, momentum):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
        self.history = []

    def fit_epoch(self, data, batch):
        adj, mask, y = data
        order = torch.randperm(len(y))
        seen = 0.0
        for i in range(0, len(order), batch):
            idx = order[i:i + batch]
            if VARIANT == "fixed":
                self.opt.zero_grad()
            logits = self.model(adj[idx], mask[idx])
            loss = F.cross_entropy(logits, y[idx])
            loss.backward()
            self.opt.step()
            self.history.append(loss.item())
            seen += loss.item() * len(idx)
        return seen / len(order)

    def fit(self, data, valid, epochs, batch=32):
        self.opt.zero_grad()
        for epoch in range(epochs):
            mean_loss = self.fit_epoch(data, batch)
            if epoch % 4 == 0:
                print(f"  epoch {epoch:3d} | loss {mean_loss:10.4f} | val acc {self.score(valid):.3f}")

    @torch.no_grad()
    def score(self, data):
        adj, mask, y = data
        return (self.model(adj, mask).argmax(-1) == y).float().mean().item()


torch.set_num_threads(1)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)
labels = rng.integers(0, N_CLASSES, 900)
graphs, masks = zip(*[make_graph(k, rng) for k in labels])
A, M, Y = torch.tensor(np.stack(graphs)), torch.tensor(np.stack(masks)), torch.tensor(labels)

accs, firsts, lasts = [], [], []
for fold in range(2):
    test = torch.zeros(len(Y), dtype=torch.bool)
    test[fold * 300:(fold + 1) * 300] = True
    print(f"fold {fold}")
    net = GraphNet()
    runner = Runner(torch.compile(net, backend=BACKEND) if BACKEND else net, lr=0.03, momentum=0.9)
    held_out = (A[test], M[test], Y[test])
    runner.fit((A[~test], M[~test], Y[~test]), held_out, epochs=24)
    accs.append(runner.score(held_out))
    firsts.append(runner.history[0])
    lasts.append(float(np.mean(runner.history[-10:])))
acc = float(np.mean(accs))
f = lambda v: round(v, 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": f(firsts[0]), "loss_last": f(lasts[-1]), "metric_name": "cv_accuracy", "metric": f(acc),
                  "ok": acc > 0.85}))
