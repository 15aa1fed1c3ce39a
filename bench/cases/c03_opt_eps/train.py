"""Small encoder-decoder with attention: translate digit strings to reversed "spoken" tokens."""
import argparse
import json
import os
import types

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ENV = types.SimpleNamespace(variant=os.environ.get("CASE_VARIANT", "faulty"), seed=int(os.environ.get("CASE_SEED", "0")),
                            backend=os.environ.get("CASE_COMPILE", ""))
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=3e-3)
parser.add_argument("--adam-eps", type=float, default=1e-8 if ENV.variant == "fixed" else 0.1)
parser.add_argument("--steps", type=int, default=350)
parser.add_argument("--batch", type=int, default=48)
args = parser.parse_args([])

torch.set_num_threads(2)
torch.manual_seed(ENV.seed)
rng = np.random.default_rng(ENV.seed)
SRC, TGT, LEN, BOS = 12, 25, 6, 24
TABLE = np.random.default_rng(99).permutation(24)


def batch(n):
    src = rng.integers(0, SRC, size=(n, LEN))
    # each source symbol becomes one of two target symbols depending on its left neighbour's parity
    left = np.concatenate([np.zeros((n, 1), dtype=int), src[:, :-1]], axis=1)
    tgt = TABLE[src * 2 + (left % 2)]
    return torch.from_numpy(src), torch.from_numpy(tgt[:, ::-1].copy())


class Encoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.emb = nn.Embedding(SRC, d)
        self.rnn = nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * d, d)

    def forward(self, s):
        h, last = self.rnn(self.emb(s))
        return h, torch.tanh(self.bridge(torch.cat([last[0], last[1]], -1)))


class AttnDecoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.emb = nn.Embedding(TGT, d)
        self.cell = nn.GRUCell(3 * d, d)
        self.query = nn.Linear(d, 2 * d, bias=False)
        self.out = nn.Linear(3 * d, TGT)

    def forward(self, memory, state, tgt_in):
        logits, ctx = [], torch.zeros(memory.size(0), memory.size(2))
        for t in range(tgt_in.size(1)):
            state = self.cell(torch.cat([self.emb(tgt_in[:, t]), ctx], -1), state)
            score = torch.bmm(memory, self.query(state).unsqueeze(2)).squeeze(2) / memory.size(2) ** 0.5
            ctx = torch.bmm(score.softmax(1).unsqueeze(1), memory).squeeze(1)
            logits.append(self.out(torch.cat([state, ctx], -1)))
        return torch.stack(logits, 1)


class Translator(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.encoder = Encoder(d)
        self.decoder = AttnDecoder(d)

    def forward(self, src, tgt):
        mem, st = self.encoder(src)
        bos = torch.full((src.size(0), 1), BOS, dtype=torch.long)
        return self.decoder(mem, st, torch.cat([bos, tgt[:, :-1]], 1))


def token_accuracy(model):
    model.eval()
    with torch.no_grad():
        src, tgt = batch(256)
        acc = (model(src, tgt).argmax(-1) == tgt).float().mean().item()
    model.train()
    return acc


model = Translator()
if ENV.backend:
    model = torch.compile(model, backend=ENV.backend)
optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate, eps=args.adam_eps)
log = []
for step in range(args.steps):
    src, tgt = batch(args.batch)
    logits = model(src, tgt)
    loss = F.cross_entropy(logits.flatten(0, 1), tgt.flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    log.append(loss.item())
    if (step + 1) % 70 == 0:
        print(f"step {step + 1} ppl {np.exp(np.mean(log[-20:])):.2f} acc {token_accuracy(model):.3f}")

acc = token_accuracy(model)
print(json.dumps({"loss_first": log[0], "loss_last": log[-1], "metric_name": "token_accuracy", "metric": acc, "ok": acc > 0.9}))
