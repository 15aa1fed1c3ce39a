# Nodes of an attributed graph as Gaussian distributions; nearer nodes (in hops) must have lower energy than farther ones.
import json
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(seed)
np.random.seed(seed)

N, GROUPS, L = 480, 6, 16


def shop_graph():
    """Shops linked by shared customers; attributes are turnover, floor space, visits and so on, as recorded."""
    z = np.arange(N) % GROUPS
    prob = np.where(z[:, None] == z[None], 0.10, 0.0015)
    A = np.triu(np.random.rand(N, N) < prob, 1)
    A = A | A.T
    profile = np.random.rand(GROUPS, 20)
    unit = 10 ** np.random.uniform(1.0, 5.0, 20)
    X = (profile[z] + 0.5 * np.random.rand(N, 20)) * unit
    return A, X.astype(np.float32)


def hops(A, K=2):
    D = np.full(A.shape, K + 1)
    reach = np.eye(N, dtype=bool)
    for k in range(1, K + 1):
        nxt = reach | (reach.astype(np.int32) @ A.astype(np.int32) > 0)
        D[nxt & ~reach & (D > k)] = k
        reach = nxt
    np.fill_diagonal(D, 0)
    return D


class Graph2Dist(nn.Module):
    def __init__(self, d, L, n_hidden=64):
        super().__init__()
        self.hidden = nn.Linear(d, n_hidden)
        self.mu = nn.Linear(n_hidden, L)
        self.log_sigma = nn.Linear(n_hidden, L)
        for m in (self.hidden, self.mu, self.log_sigma):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)

    def forward(self, x):
        h = F.relu(self.hidden(x))
        return self.mu(h), F.elu(self.log_sigma(h)) + 1 + 1e-10


def kl_energy(mu, sigma, i, j):
    ratio = sigma[j] / sigma[i]
    return 0.5 * (ratio.sum(1) + ((mu[i] - mu[j]) ** 2 / sigma[i]).sum(1) - L - torch.log(ratio + 1e-14).sum(1))


A, X = shop_graph()
D = hops(A)
if variant == "fixed":
    X = (X - X.min(0)) / (X.max(0) - X.min(0))
X = torch.from_numpy(X)
ring = {k: [np.flatnonzero(D[v] == k) for v in range(N)] for k in (1, 2, 3)}


def triplets():
    out = []
    for v in range(N):
        picks = {k: np.random.choice(r[v]) for k, r in ring.items() if len(r[v])}
        ks = sorted(picks)
        out += [(v, picks[a], picks[b]) for a in ks for b in (3,) if a < b and b in picks]
    return torch.tensor(np.array(out))


model = Graph2Dist(X.shape[1], L)
encode = torch.compile(model, backend=backend) if backend else model
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
log, t0 = [], time.time()
for epoch in range(400):
    t = triplets()
    mu, sigma = encode(X)
    near, far = kl_energy(mu, sigma, t[:, 0], t[:, 1]), kl_energy(mu, sigma, t[:, 0], t[:, 2])
    loss = (near ** 2 + torch.exp(-far)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.append(loss.item())
    if epoch % 50 == 0:
        print(f"epoch: {epoch:3d}, loss: {loss.item():.4f}, {time.time() - t0:.1f}s")

with torch.no_grad():
    mu, sigma = model(X)
    t = torch.cat([triplets() for _ in range(5)])
    near, far = kl_energy(mu, sigma, t[:, 0], t[:, 1]), kl_energy(mu, sigma, t[:, 0], t[:, 2])
    right = (near < far)[torch.from_numpy(D)[t[:, 0], t[:, 2]] == 3].float().mean().item()
print(f"ranked correctly: {right:.3f}")
num = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": num(log[0]), "loss_last": num(log[-1]), "metric_name": "ranking_accuracy", "metric": right,
                  "ok": right > 0.8}))
