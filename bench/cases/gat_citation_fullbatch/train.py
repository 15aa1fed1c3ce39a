"""Graph attention on a synthetic citation network, all nodes in one batch, twenty labels per class."""
import json, math, os, random
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(seed); np.random.seed(seed); torch.manual_seed(seed)

N, C, WORDS = 1200, 6, 600


def citation_graph(rng):
    y = rng.choice(C, N, p=[0.32, 0.22, 0.16, 0.12, 0.1, 0.08])
    topic = rng.dirichlet(np.full(WORDS, 0.05), C)
    common = rng.dirichlet(np.full(WORDS, 0.3))
    x = np.zeros((N, WORDS), np.float32)
    for i in range(N):
        x[i, rng.choice(WORDS, 14, p=common)] = 1
        x[i, rng.choice(WORDS, 3, p=topic[y[i]])] = 1
    x /= x.sum(1, keepdims=True)
    prob = np.where(y[:, None] == y[None], 0.017, 0.0008)
    a = np.triu(rng.random((N, N)) < prob, 1)
    s, d = np.nonzero(a | a.T | np.eye(N, dtype=bool))
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(np.stack([s, d]))


class GATLayer(nn.Module):
    def __init__(self, fin, fout, heads, concat):
        super().__init__()
        self.heads, self.fout, self.concat = heads, fout, concat
        self.lin = nn.Linear(fin, heads * fout, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, fout))
        self.att_dst = nn.Parameter(torch.empty(1, heads, fout))
        self.bias = nn.Parameter(torch.zeros(heads * fout if concat else fout))
        for p in (self.lin.weight, self.att_src, self.att_dst):
            nn.init.xavier_uniform_(p)

    def forward(self, x, edges):
        src, dst = edges
        h = self.lin(x).view(-1, self.heads, self.fout)
        e = F.leaky_relu((h * self.att_src).sum(-1)[src] + (h * self.att_dst).sum(-1)[dst], 0.2)
        e = (e - e.max()).exp()
        z = torch.zeros(len(x), self.heads).index_add(0, dst, e)
        alpha = F.dropout(e / z[dst], 0.6, self.training)
        out = torch.zeros_like(h).index_add(0, dst, alpha.unsqueeze(-1) * h[src])
        return (out.flatten(1) if self.concat else out.mean(1)) + self.bias


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GATLayer(WORDS, 8, 8, True)
        self.conv2 = GATLayer(64, C, 1, False)

    def forward(self, x, edges):
        x = F.dropout(x, 0.6, self.training)
        x = F.dropout(F.elu(self.conv1(x, edges)), 0.6, self.training)
        return self.conv2(x, edges)


rng = np.random.default_rng(seed)
x, y, edges = citation_graph(rng)
train_idx = torch.cat([torch.from_numpy(rng.permutation(np.flatnonzero(y.numpy() == c))[:20]) for c in range(C)])
rest = torch.from_numpy(rng.permutation(np.setdiff1d(np.arange(N), train_idx.numpy())))
val_idx, test_idx = rest[:300], rest[300:]

gat = GAT()
model = torch.compile(gat, backend=backend) if backend else gat
opt = torch.optim.Adam(gat.parameters(), lr=0.005, weight_decay=5e-4)


def train():
    gat.train()
    opt.zero_grad()
    loss = F.cross_entropy(model(x, edges)[train_idx], y[train_idx], label_smoothing=0.1)
    loss.backward()
    opt.step()
    return loss.item()


@torch.no_grad()
def test():
    gat.eval()
    out = model(x, edges)
    return [(out[i].argmax(1) == y[i]).float().mean().item() for i in (train_idx, val_idx, test_idx)]


best_val, kept, history = 0.0, 0.0, []
for epoch in range(1, 301):
    history.append(train())
    if epoch % 5 == 0:
        tr, va, te = test()
        if va > best_val:
            best_val, kept = va, te
        if epoch % 25 == 0:
            print(f"Epoch: {epoch:03d}, Loss: {history[-1]:.4f}, Train: {tr:.4f}, Val: {va:.4f}, Test: {te:.4f}")
print(f"test accuracy at best validation {kept:.4f}, at the end {te:.4f}")
f = lambda v: round(v, 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": f(history[0]), "loss_last": f(float(np.mean(history[-10:]))), "metric_name": "test_accuracy",
                  "metric": f(te), "ok": bool(te > 0.8)}))
