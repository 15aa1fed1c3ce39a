"""Two-layer GCN, semi-supervised node classification on a citation-like graph (dense adjacency, full batch)."""
import json
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn import Linear, Module, ModuleList

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

args = {"hidden": 16, "dropout": 0.5, "lr": 0.01, "epochs": 200, "per_class": 20,
        "weight_decay": 5e-4 if VARIANT == "fixed" else 5e-3}


def make_graph(sizes=(150, 90, 120, 200, 100, 80, 60), vocab=500, words=18):
    n, c = sum(sizes), len(sizes)
    y = np.repeat(np.arange(c), sizes)
    same = y[:, None] == y[None, :]
    adj = np.triu(rng.random((n, n)) < np.where(same, 0.022, 0.0018), 1)
    adj = (adj | adj.T).astype(np.float32)
    topics = rng.dirichlet(np.full(vocab, 0.08), size=c) * 0.35 + rng.dirichlet(np.full(vocab, 0.5)) * 0.65
    x = np.zeros((n, vocab), dtype=np.float32)
    for i in range(n):
        x[i, rng.choice(vocab, size=words, p=topics[y[i]])] = 1
    x /= x.sum(1, keepdims=True)
    a = adj + np.eye(n, dtype=np.float32)
    d = a.sum(1) ** -0.5
    return torch.tensor(x), torch.tensor(a * d[:, None] * d[None, :]), torch.tensor(y)


class GCNConv(Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.lin = Linear(n_in, n_out)

    def forward(self, x, a):
        return a @ self.lin(x)


class GCN(Module):
    def __init__(self, n_in, n_hidden, n_out):
        super().__init__()
        self.convs = ModuleList([GCNConv(n_in, n_hidden), GCNConv(n_hidden, n_out)])

    def forward(self, x, a):
        x = F.relu(self.convs[0](x, a))
        x = F.dropout(x, args["dropout"], training=self.training)
        return self.convs[1](x, a)


x, a, y = make_graph()
n_class = int(y.max()) + 1
train_mask = torch.zeros(len(y), dtype=torch.bool)
for c in range(n_class):
    members = (y == c).nonzero().flatten()
    train_mask[members[torch.randperm(len(members))[:args["per_class"]]]] = True
test_mask = ~train_mask

model = GCN(x.size(1), args["hidden"], n_class)
if BACKEND:
    model = torch.compile(model, backend=BACKEND)
optimizer = torch.optim.Adam(model.parameters(), lr=args["lr"], weight_decay=args["weight_decay"])

losses = []
for epoch in range(1, args["epochs"] + 1):
    model.train()
    optimizer.zero_grad()
    out = model(x, a)
    loss = F.cross_entropy(out[train_mask], y[train_mask])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if epoch % 40 == 0:
        model.eval()
        with torch.no_grad():
            hit = model(x, a).argmax(1) == y
        print(f"Epoch {epoch:03d}, loss {loss.item():.4f}, train {hit[train_mask].float().mean():.3f}, "
              f"test {hit[test_mask].float().mean():.3f}")

acc = hit[test_mask].float().mean().item()
print(json.dumps({"loss_first": losses[0], "loss_last": losses[-1], "metric_name": "test_accuracy", "metric": acc,
                  "ok": acc > 0.7}))
