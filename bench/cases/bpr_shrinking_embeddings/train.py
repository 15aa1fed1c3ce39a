"""Bayesian personalised ranking with user and item embeddings."""
import json
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
rng = np.random.default_rng(SEED)

USERS, ITEMS, RANK = 260, 190, 5
affinity = rng.normal(size=(USERS, RANK)) @ rng.normal(size=(RANK, ITEMS))
liked = affinity > np.quantile(affinity, 0.85, axis=1, keepdims=True)
held_out = liked & (rng.random(liked.shape) < 0.25)
train_pos = np.argwhere(liked & ~held_out)
print(len(train_pos), "interactions")


class PairRanker(nn.Module):
    def __init__(self, dim=14):
        super().__init__()
        self.user = nn.Embedding(USERS, dim)
        self.item = nn.Embedding(ITEMS, dim)
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.item.weight, std=0.3)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1)


model = PairRanker()
score = torch.compile(model, backend=BACKEND) if BACKEND else model
decay = 0.0 if VARIANT == "fixed" else 0.05
opt = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=decay)
log = []
for step in range(360):
    rows = train_pos[rng.integers(0, len(train_pos), 500)]
    neg = rng.integers(0, ITEMS, 500)
    neg = np.where(liked[rows[:, 0], neg], (neg + 7) % ITEMS, neg)
    u, i, j = (torch.as_tensor(a) for a in (rows[:, 0], rows[:, 1], neg))
    loss = -F.logsigmoid(score(u, i) - score(u, j)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.append(loss.item())
    if step % 60 == 0:
        print(f"step {step} bpr {loss.item():.4f}")

with torch.no_grad():
    s = (model.user.weight @ model.item.weight.T).numpy()
auc = np.mean([(s[u][held_out[u]][:, None] > s[u][~liked[u]][None, :]).mean() for u in range(USERS) if held_out[u].any()])
print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-20:])), "metric_name": "auc", "metric": float(auc),
                  "ok": bool(auc > 0.85 and np.mean(log[-20:]) < 0.3)}))
