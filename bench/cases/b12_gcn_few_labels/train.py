# Semi-supervised node classification, full batch, four labelled nodes per class.
import os, json, math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
rng = np.random.RandomState(SEED)
torch.set_num_threads(1)

N, C, FEAT, SHOTS = 900, 5, 300, 4


def citation_like_graph():
    y = rng.randint(0, C, N)
    same = y[:, None] == y[None]
    A = rng.rand(N, N) < np.where(same, 0.03, 0.0025)
    A = np.triu(A, 1)
    A = (A | A.T).astype(np.float32) + np.eye(N, dtype=np.float32)
    d = A.sum(1) ** -0.5
    proto = rng.rand(C, FEAT) < 0.06
    X = (rng.rand(N, FEAT) < np.where(proto[y], 0.10, 0.015)).astype(np.float32)
    X /= np.maximum(X.sum(1, keepdims=True), 1)
    return torch.from_numpy(X), torch.from_numpy(d[:, None] * A * d[None]).to_sparse_csr(), torch.from_numpy(y)


class GraphConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(i, o))
        self.bias = nn.Parameter(torch.zeros(o))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, h, adj):
        return adj @ (h @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, adj):
        super().__init__()
        self.register_buffer("adj", adj)
        self.gc1 = GraphConv(FEAT, 16)
        self.gc2 = GraphConv(16, C)

    def forward(self, x):
        x = F.dropout(x, 0.5, self.training)
        h = F.dropout(F.relu(self.gc1(x, self.adj)), 0.5, self.training)
        return F.log_softmax(self.gc2(h, self.adj), dim=1)


X, adj, y = citation_like_graph()
adj = adj.to_dense()
perm = rng.permutation(N)
train_idx = np.concatenate([[i for i in perm if y[i] == c][:SHOTS] for c in range(C)])
rest = np.setdiff1d(perm, train_idx)
rng.shuffle(rest)
val_idx, test_idx = map(torch.as_tensor, (rest[:200], rest[200:]))
train_idx = torch.as_tensor(train_idx)

model = GCN(adj)
net = torch.compile(model, backend=COMPILE) if COMPILE else model
opt = torch.optim.Adam([{"params": model.gc1.parameters(), "weight_decay": 5e-4},
                        {"params": model.gc2.parameters(), "weight_decay": 0.0}], lr=0.01)
losses, best_val, best_test = [], -1.0, 0.0
for epoch in range(200):
    model.train()
    opt.zero_grad()
    out = net(X)
    loss = F.nll_loss(out[train_idx], y[train_idx])
    loss.backward()
    opt.step()
    losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        pred = model(X).argmax(1)
    va = (pred[val_idx] == y[val_idx]).float().mean().item()
    if va > best_val:
        best_val, best_test = va, (pred[test_idx] == y[test_idx]).float().mean().item()
    if epoch % 25 == 0:
        ta = (pred[train_idx] == y[train_idx]).float().mean().item()
        print(f"Epoch {epoch:03d} loss {losses[-1]:.4f} train {ta:.2f} val {va:.3f}")

fin = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(np.mean(losses[-10:])), "metric_name": "test_accuracy",
                  "metric": best_test, "ok": bool(best_test > 0.8)}))
