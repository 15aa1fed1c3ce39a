"""Character model of Python source: the text is cut in parallel streams that are read in order, state carried along."""
import argparse
import csv
import json
import math
import os
import random
import string
import textwrap
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")


class Streams:
    """Yields (x, y) of shape (T, B); row t of chunk k+1 follows the last row of chunk k."""

    def __init__(self, ids, batch, bptt):
        n = (len(ids) - 1) // batch
        self.x = ids[:n * batch].view(batch, n).t().contiguous()
        self.y = ids[1:n * batch + 1].view(batch, n).t().contiguous()
        self.bptt = bptt

    def __len__(self):
        return len(self.x) // self.bptt

    def __iter__(self):
        for k in range(len(self)):
            s = slice(k * self.bptt, (k + 1) * self.bptt)
            yield self.x[s], self.y[s]


class CharGRU(nn.Module):
    def __init__(self, vocab, emb=32, hid=96):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb)
        self.rnn = nn.GRU(emb, hid)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(hid, vocab)

    def forward(self, x, h):
        o, h = self.rnn(self.emb(x), h)
        return self.head(self.drop(o)), h


def trigram_bits(train, test, vocab):
    tri, bi, ctx, uni = Counter(), Counter(), Counter(), Counter(train)
    for a, b, c in zip(train, train[1:], train[2:]):
        tri[a, b, c] += 1
        ctx[a, b] += 1
        bi[b, c] += 1
    total, bits = len(train), 0.0
    for a, b, c in zip(test, test[1:], test[2:]):
        p0 = (uni[c] + 1) / (total + vocab)
        p1 = (bi[b, c] + 4 * p0) / (uni[b] + 4)
        bits -= math.log2((tri[a, b, c] + 4 * p1) / (ctx[a, b] + 4))
    return bits / (len(test) - 2)


def main():
    torch.set_num_threads(1)
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    parts = []
    for mod in (string, textwrap, csv, json.decoder, random, argparse):
        with open(mod.__file__, encoding="utf-8") as fh:
            t = "".join(c if c in string.printable else "?" for c in fh.read().lower())
            parts.append((t[:int(len(t) * 0.9)], t[int(len(t) * 0.9):]))
    text, held = "".join(p[0] for p in parts), "".join(p[1] for p in parts)
    chars = sorted(set(text + held))
    idx = {c: k for k, c in enumerate(chars)}
    train = Streams(torch.tensor([idx[c] for c in text]), 24, 40)
    valid = Streams(torch.tensor([idx[c] for c in held]), 4, 40)
    net = CharGRU(len(chars))
    model = torch.compile(net, backend=COMPILE) if COMPILE else net
    opt = torch.optim.Adam(net.parameters(), lr=5e-4)
    sched = torch.optim.lr_scheduler.CyclicLR(opt, base_lr=5e-4, max_lr=8e-3, step_size_up=len(train), mode="triangular2",
                                              cycle_momentum=False)
    print(f"{len(text)} characters, {len(chars)} symbols, {len(train)} chunks an epoch")
    log = []
    for epoch in range(4):
        net.train()
        h = torch.zeros(1, 24, 96)
        for x, y in train:
            logits, h = model(x, h.detach())
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            log.append(loss.item())
        net.eval()
        h, nll = torch.zeros(1, 4, 96), []
        with torch.no_grad():
            for x, y in valid:
                logits, h = model(x, h)
                nll.append(F.cross_entropy(logits.flatten(0, 1), y.flatten()).item())
        bpc = float(np.mean(nll)) / math.log(2)
        print(f"epoch {epoch} lr {opt.param_groups[0]['lr']:.5f} train {np.mean(log[-len(train):]) / math.log(2):.3f} valid {bpc:.3f} bits")
    ref = trigram_bits(text, held, len(chars))
    print(f"valid bits per character: trigram counts {ref:.3f}, network {bpc:.3f}")
    f = lambda v: round(v, 4) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(log[0]), "loss_last": f(float(np.mean(log[-10:]))), "metric_name": "valid_bits_per_char",
                      "metric": f(bpc), "ok": bool(bpc < ref - 0.15)}))


if __name__ == "__main__":
    main()
