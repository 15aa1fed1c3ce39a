"""Attention encoder-decoder that rewrites human-readable dates into ISO form."""
import argparse
import datetime
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")

parser = argparse.ArgumentParser()
parser.add_argument("--embed-dim", type=int, default=24)
parser.add_argument("--hidden-dim", type=int, default=64)
parser.add_argument("--mini-batch-size", type=int, default=48)
parser.add_argument("--updates", type=int, default=420)
parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
parser.add_argument("--learning-rate", type=float, default=3e-3)
parser.add_argument("--opt-eps", type=float, default=0.1 if VARIANT != "fixed" else 1e-8)
parser.add_argument("--gradient-clipping", type=float, default=5.0)
parser.add_argument("--random-seed", type=int, default=int(os.environ.get("CASE_SEED", "0")))
args, _ = parser.parse_known_args()

torch.set_num_threads(1)
random.seed(args.random_seed)
np.random.seed(args.random_seed)
torch.manual_seed(args.random_seed)

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
CHARS = "_abcdefghijklmnopqrstuvwxyz0123456789 ,"
SRC = {c: i for i, c in enumerate(CHARS)}
TGT = {c: i for i, c in enumerate("0123456789>")}
MAX_SRC, TGT_LEN = 14, 6


def example():
    d = datetime.date(2000, 1, 1) + datetime.timedelta(days=random.randrange(3650 * 3))
    m = MONTHS[d.month - 1]
    text = random.choice([f"{d.day} {m} {d.year % 100:02d}", f"{m} {d.day}, {d.year % 100:02d}", f"{d.year % 100:02d} {m} {d.day}"])
    src = [SRC[c] for c in text] + [0] * (MAX_SRC - len(text))
    return src, [TGT[c] for c in d.strftime("%y%m%d")]


def make_corpus(n):
    s, t = zip(*(example() for _ in range(n)))
    return torch.tensor(s), torch.tensor(t)


class Encoder(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), e, padding_idx=0)
        self.rnn = nn.GRU(e, h, batch_first=True, bidirectional=True)

    def forward(self, src):
        memory, last = self.rnn(self.embed(src))
        return memory, torch.cat([last[0], last[1]], -1)


class Decoder(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.embed = nn.Embedding(len(TGT), e)
        self.bridge = nn.Linear(2 * h, h)
        self.cell = nn.GRUCell(e + 2 * h, h)
        self.query = nn.Linear(h, 2 * h, bias=False)
        self.generator = nn.Linear(3 * h, 10)

    def forward(self, tokens, memory, summary, mask):
        state = torch.tanh(self.bridge(summary))
        context = torch.zeros_like(memory[:, 0])
        outs = []
        for t in range(tokens.size(1)):
            state = self.cell(torch.cat([self.embed(tokens[:, t]), context], -1), state)
            score = torch.einsum("bd,bld->bl", self.query(state), memory) / memory.size(-1) ** 0.5
            context = torch.einsum("bl,bld->bd", score.masked_fill(mask, -1e4).softmax(-1), memory)
            outs.append(self.generator(torch.cat([state, context], -1)))
        return torch.stack(outs, 1)


class EncDec(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.enc, self.dec = Encoder(e, h), Decoder(e, h)

    def forward(self, src, tgt_in):
        memory, summary = self.enc(src)
        return self.dec(tgt_in, memory, summary, src == 0)


def shifted(tgt):
    return torch.cat([torch.full_like(tgt[:, :1], TGT[">"]), tgt[:, :-1]], 1)


def build_optimizer(model):
    if args.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=args.learning_rate, betas=(0.9, 0.999), eps=args.opt_eps)
    return torch.optim.SGD(model.parameters(), lr=args.learning_rate)


corpus, dev = make_corpus(4000), make_corpus(400)
net = EncDec(args.embed_dim, args.hidden_dim)
backend = os.environ.get("CASE_COMPILE", "")
model = torch.compile(net, backend=backend) if backend else net
opt = build_optimizer(net)

history = []
for update in range(1, args.updates + 1):
    pick = torch.randint(0, len(corpus[0]), (args.mini_batch_size,))
    src, tgt = corpus[0][pick], corpus[1][pick]
    logits = model(src, shifted(tgt))
    loss = F.cross_entropy(logits.flatten(0, 1), tgt.flatten())
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), args.gradient_clipping)
    opt.step()
    history.append(loss.item())
    if update % 60 == 0:
        print(f"update {update}/{args.updates} train loss {np.mean(history[-60:]):.4f} ppl {math.exp(np.mean(history[-60:])):.3f}")

with torch.no_grad():
    pred = model(dev[0], shifted(dev[1])).argmax(-1)
acc = (pred == dev[1]).float().mean().item()
print("dev char accuracy %.3f, whole dates %.3f" % (acc, (pred == dev[1]).all(1).float().mean().item()))
print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])), "metric_name": "dev_char_accuracy",
                  "metric": acc, "ok": acc > 0.9}))
