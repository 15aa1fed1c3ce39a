import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

# --- corpus: a first-order grammar over 60 words, each word has a few likely successors
V, BPTT, BATCH = 60, 12, 20
table = np.random.dirichlet(np.full(V, 0.03), size=V)
cdf = table.cumsum(1)


def write_corpus(n):
    ids, w = np.empty(n, dtype=np.int64), 0
    u = np.random.rand(n)
    for i in range(n):
        w = min(V - 1, int(np.searchsorted(cdf[w], u[i])))
        ids[i] = w
    return torch.from_numpy(ids)


def batchify(ids, bsz):
    n = len(ids) // bsz
    return ids[: n * bsz].view(bsz, n).t().contiguous()


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp=32, nhid=48, dropout=0.1):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.GRU(ninp, nhid)
        self.decoder = nn.Linear(nhid, ntoken)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, tokens, hidden):
        out, hidden = self.rnn(self.drop(self.encoder(tokens)), hidden)
        return self.decoder(self.drop(out)), hidden


train_data, val_data = batchify(write_corpus(60000), BATCH), batchify(write_corpus(4000), BATCH)
lm = RNNModel(V)
model = torch.compile(lm, backend=BACKEND) if BACKEND else lm
criterion = nn.CrossEntropyLoss()
weight_decay = 1e-6 if VARIANT == "fixed" else 1e-2
optimizer = torch.optim.Adam(lm.parameters(), lr=5e-3, weight_decay=weight_decay)

lm.train()
hidden = torch.zeros(1, BATCH, 48)
log = []
for step in range(240):
    i = step * BPTT
    data, target = train_data[i:i + BPTT], train_data[i + 1:i + 1 + BPTT].reshape(-1)
    hidden = hidden.detach()
    out, hidden = model(data, hidden)
    loss = criterion(out.view(-1, V), target)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(lm.parameters(), 0.25)
    optimizer.step()
    log.append(loss.item())
    if step % 40 == 39:
        cur = np.mean(log[-40:])
        print(f"| {step + 1:4d}/240 batches | loss {cur:5.2f} | ppl {math.exp(cur):8.2f}")

lm.eval()
with torch.no_grad():
    out, _ = model(val_data[:-1], torch.zeros(1, BATCH, 48))
    ppl = math.exp(criterion(out.view(-1, V), val_data[1:].reshape(-1)).item())
uni = np.bincount(train_data.numpy().ravel(), minlength=V) / train_data.numel()
uni_ppl = math.exp(-(uni[uni > 0] * np.log(uni[uni > 0])).sum())
print(f"valid ppl {ppl:.2f} (unigram {uni_ppl:.2f})")
num = lambda v: round(float(v), 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": num(log[0]), "loss_last": num(np.mean(log[-20:])), "metric_name": "valid_ppl_over_unigram",
                  "metric": num(ppl / uni_ppl), "ok": bool(ppl / uni_ppl < 0.3)}))
