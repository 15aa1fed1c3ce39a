"""Next-item prediction from a user's history with attention pooling over a padded sequence."""
import json
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
ITEMS, GENRES, MAXLEN = 80, 5, 10
genre = torch.randint(0, GENRES, (ITEMS,))


class AttentionPool(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.key = nn.Linear(d, d)
        self.query = nn.Parameter(torch.randn(d) / d ** 0.5)

    def forward(self, h, valid):
        score = torch.tanh(self.key(h)) @ self.query
        fill = -1e4 if VARIANT == "fixed" else float("-inf")
        weight = torch.softmax(score.masked_fill(~valid, fill), dim=1)
        return (weight.unsqueeze(-1) * h).sum(1)


class SessionModel(nn.Module):
    def __init__(self, d=22):
        super().__init__()
        self.items = nn.Embedding(ITEMS + 1, d, padding_idx=0)
        self.pool = AttentionPool(d)
        self.mlp = nn.Sequential(nn.Linear(d, 34), nn.ReLU(), nn.Linear(34, GENRES))

    def forward(self, hist):
        return self.mlp(self.pool(self.items(hist), hist > 0))


def sessions(n):
    taste = torch.randint(0, GENRES, (n,))
    hist = torch.randint(0, ITEMS, (n, MAXLEN))
    fav = torch.stack([torch.nonzero(genre == int(t)).flatten()[torch.randint(int((genre == t).sum()), (MAXLEN,))] for t in taste])
    hist = torch.where(torch.rand(n, MAXLEN) < 0.6, fav, hist) + 1
    length = torch.randint(1, MAXLEN + 1, (n,))
    length[torch.rand(n) < 0.002] = 0
    hist[torch.arange(MAXLEN)[None] >= length[:, None]] = 0
    return hist, taste


hist, taste = sessions(4000)
vh, vt = sessions(600)
model = SessionModel()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=1e-3)
losses = []
for epoch in range(4):
    order = torch.randperm(len(hist))
    for k in range(0, len(hist), 64):
        b = order[k:k + 64]
        loss = F.cross_entropy(net(hist[b]), taste[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {losses[-1]:.4f}")
with torch.no_grad():
    acc = (net(vh).argmax(1) == vt).float().mean().item()
n = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": n(losses[0]), "loss_last": n(losses[-1]), "metric_name": "val_accuracy", "metric": acc, "ok": acc > 0.6}))
