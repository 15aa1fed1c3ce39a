"""Sentence polarity on top of fixed word vectors (as with downloaded embeddings), attention pooling, clipped updates."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

VOCAB, DIM, LEN, PAD = 400, 24, 16, 0

# stand-in for pretrained vectors: meaning lives in a few directions
meaning = torch.randn(VOCAB, 3)
vectors = meaning @ torch.randn(3, DIM) + 0.5 * torch.randn(VOCAB, DIM)
vectors = vectors / vectors.std()
vectors[PAD] = 0
polarity, emphasis = meaning[:, 0], meaning[:, 1]


def reviews(n):
    ids = torch.randint(1, VOCAB, (n, LEN))
    ids[torch.arange(LEN)[None] >= torch.randint(6, LEN + 1, (n, 1))] = PAD
    w = torch.exp(emphasis[ids]) * (ids != PAD)
    score = (w * polarity[ids]).sum(1) / w.sum(1)
    return ids, (score > 0).float()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(vectors, freeze=True, padding_idx=PAD)
        self.attention = nn.Linear(DIM, 1)
        self.fc = nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids):
        e = self.embedding(ids)
        a = self.attention(e).squeeze(-1).masked_fill(ids == PAD, -1e4).softmax(-1)
        return self.fc((a.unsqueeze(-1) * e).sum(1)).squeeze(-1)


train, test = reviews(3000), reviews(600)
net = Classifier()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=5e-3)
losses = []
for step in range(300):
    i = torch.randint(0, 3000, (64,))
    loss = F.binary_cross_entropy_with_logits(model(train[0][i]), train[1][i])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.02)
    optimizer.step()
    losses.append(loss.item())
    if step % 50 == 0:
        print(f"{step:4d} loss {loss.item():.4f}")

with torch.no_grad():
    acc = ((model(test[0]) > 0).float() == test[1]).float().mean().item()
f = lambda v: round(float(v), 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": f(losses[0]), "loss_last": f(np.mean(losses[-10:])), "metric_name": "test_accuracy",
                  "metric": f(acc), "ok": bool(acc > 0.85)}))
