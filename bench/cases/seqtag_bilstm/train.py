"""BIO tagging with a BiLSTM over word + character-shape features."""
import json
import math
import os
import random

import numpy as np
import torch
from torch import nn

seed = int(os.environ.get("CASE_SEED", "0"))
torch.set_num_threads(1)
random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)

VOCAB, SHAPES, TAGS, LEN = 120, 4, 5, 14
TRIGGER_PER, TRIGGER_LOC = 3, 7          # "mr", "in"


def sentences(n):
    words = np.random.randint(10, VOCAB, (n, LEN))
    shapes = np.random.randint(0, 2, (n, LEN))
    tags = np.zeros((n, LEN), dtype=np.int64)
    for i in range(n):
        t = np.random.randint(0, 3)
        while t < LEN - 4:
            kind = np.random.randint(0, 2)
            words[i, t] = (TRIGGER_PER, TRIGGER_LOC)[kind]
            span = np.random.randint(1, 4)
            for j in range(span):
                tags[i, t + 1 + j] = 1 + 2 * kind + (j > 0)
                shapes[i, t + 1 + j] = 2 + np.random.randint(0, 2)
            t += span + 1 + np.random.randint(1, 4)
    return torch.from_numpy(words), torch.from_numpy(shapes), torch.from_numpy(tags)


class Tagger(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.word_emb = nn.Embedding(VOCAB, 24)
        self.shape_emb = nn.Embedding(SHAPES, 6)
        self.lstm = nn.LSTM(30, hidden, batch_first=True, bidirectional=True)
        self.proj = nn.Linear(2 * hidden, TAGS)

    def forward(self, w, s):
        out, _ = self.lstm(torch.cat([self.word_emb(w), self.shape_emb(s)], -1))
        return self.proj(out)


def span_tag_f1(pred, gold):
    hit = ((pred == gold) & (gold > 0)).sum().item()
    p, r = (pred > 0).sum().item(), (gold > 0).sum().item()
    return 2 * hit / max(1, p + r)


train, dev = sentences(600), sentences(200)
tagger = Tagger()
backend = os.environ.get("CASE_COMPILE", "")
model = torch.compile(tagger, backend=backend) if backend else tagger
lr = 0.01 if os.environ.get("CASE_VARIANT", "faulty") == "fixed" else 0.5
optimizer = torch.optim.RMSprop(tagger.parameters(), lr=lr)
criterion = nn.CrossEntropyLoss()

nbatches, bs, hist = 180, 20, []
order = torch.randperm(600)
for b in range(nbatches):
    lo = (b * bs) % 600
    if lo == 0:
        order = torch.randperm(600)
    idx = order[lo:lo + bs]
    logits = model(train[0][idx], train[1][idx])
    loss = criterion(logits.reshape(-1, TAGS), train[2][idx].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hist.append(loss.item())
    if b % 30 == 29:
        print(f"epoch {b // 30}: train loss: {np.mean(hist[-30:]):.5f}")

with torch.no_grad():
    f1 = span_tag_f1(model(dev[0], dev[1]).argmax(-1), dev[2])
fin = lambda v: round(float(v), 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(hist[0]), "loss_last": fin(np.mean(hist[-10:])), "metric_name": "dev_f1", "metric": fin(f1),
                  "ok": f1 > 0.9}))
