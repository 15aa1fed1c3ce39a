"""Multi-hop QA over entity graphs: encode the query, pass messages, pick one of the candidate nodes."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(seed)
torch.set_num_threads(1)

N_NODES, N_REL, N_TYPES = 24, 4, 12


def sample_graphs(n, g):
    """Query = (start type, relation). The answer is the node reached over that relation from the start node."""
    types = torch.stack([torch.randperm(N_NODES, generator=g) for _ in range(n)])   # unique ids, first 12 are "entities"
    adj = torch.zeros(n, N_REL, N_NODES, N_NODES)
    rows = torch.arange(N_NODES)
    for r in range(N_REL):
        for b in range(n):
            adj[b, r, torch.randperm(N_NODES, generator=g), rows] = 1.0
    q_type = torch.randint(0, N_TYPES, (n,), generator=g)
    q_rel = torch.randint(0, N_REL, (n,), generator=g)
    start = (types == q_type[:, None]).float().argmax(1)
    ar = torch.arange(n)
    answer = adj[ar, q_rel, :, start].argmax(1)
    return types, adj, q_type, q_rel, answer


class QueryEncoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.type_emb = nn.Embedding(N_TYPES, d)
        self.rel_emb = nn.Embedding(N_REL, d)
        self.mix = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d))

    def forward(self, t, r):
        return self.mix(torch.cat([self.type_emb(t), self.rel_emb(r)], -1))


class RelGCN(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.self_loop = nn.Linear(d, d)
        self.rel = nn.ModuleList([nn.Linear(d, d, bias=False) for _ in range(N_REL)])
        self.norm = nn.LayerNorm(d)

    def forward(self, h, adj):
        m = self.self_loop(h)
        for r, lin in enumerate(self.rel):
            m = m + adj[:, r] @ lin(h)
        return self.norm(h + F.relu(m))


class GraphReader(nn.Module):
    def __init__(self, d=32, hops=2):
        super().__init__()
        self.node_emb = nn.Embedding(N_NODES, d)
        self.query = QueryEncoder(d)
        self.inject = nn.Linear(3 * d, d)
        self.layers = nn.ModuleList([RelGCN(d) for _ in range(hops)])
        self.scorer = nn.Sequential(nn.Linear(3 * d, d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, types, adj, qt, qr):
        q = self.query(qt, qr)[:, None].expand(-1, types.shape[1], -1)
        e = self.node_emb(types)
        h = self.inject(torch.cat([e, q, e * q], -1))
        for layer in self.layers:
            h = layer(h, adj)
        scores = self.scorer(torch.cat([h, q, h * q], -1)).squeeze(-1)
        if variant == "faulty":
            scores = F.softmax(scores, dim=-1)
        return scores


gen = torch.Generator().manual_seed(seed + 1)
data = sample_graphs(1200, gen)
held = sample_graphs(300, gen)
model = GraphReader()
fwd = torch.compile(model, backend=backend) if backend else model
criterion = nn.CrossEntropyLoss()
opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)

losses = []
for step in range(240):
    idx = torch.randint(0, len(data[0]), (32,), generator=gen)
    *inp, ans = (t[idx] for t in data)
    loss = criterion(fwd(*inp), ans)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step % 40 == 39:
        with torch.no_grad():
            acc = (model(*held[:-1]).argmax(1) == held[-1]).float().mean().item()
        print(f"step {step + 1} loss {np.mean(losses[-40:]):.3f} held-out acc {acc:.3f}")

print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-20:])),
                  "metric_name": "heldout_accuracy", "metric": acc, "ok": acc > 0.85}))
