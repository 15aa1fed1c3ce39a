"""Keyword prediction: 60 labels, about four of them set per document; bag of words with an EmbeddingBag."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)

VOCAB, LABELS = 200, 60
trigger = torch.randperm(VOCAB)[:LABELS]


def docs(n, length=14):
    words = torch.randint(0, VOCAB, (n, length))
    hit = (words[:, :, None] == trigger[None, None]).any(1)
    return words, hit.float()


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(VOCAB, 64, mode="sum")
        self.hidden = nn.Linear(64, 96)
        self.out = nn.Linear(96, LABELS)
        nn.init.normal_(self.bag.weight, std=0.3)
        nn.init.constant_(self.out.bias, -2.6)

    def forward(self, words):
        return self.out(F.gelu(self.hidden(self.bag(words))))


model = Keywords()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
log = []
for it in range(450):
    w, t = docs(110)
    loss = F.binary_cross_entropy_with_logits(net(w), t)
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.append(loss.item())
    if it % 90 == 0:
        print(f"{it} bce {loss.item():.4f}")
with torch.no_grad():
    w, t = docs(1000)
    p = (net(w) > 0).float()
f1 = (2 * (p * t).sum() / (p.sum() + t.sum())).item()
print(json.dumps({"loss_first": log[0], "loss_last": sum(log[-20:]) / 20, "metric_name": "micro_f1", "metric": f1, "ok": f1 > 0.9}))
