"""Sequential recommendation: a small self-attentive next-item model on shopping sessions."""
import argparse
import json
import math
import os

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--items", type=int, default=150)
ap.add_argument("--maxlen", type=int, default=16)
ap.add_argument("--hidden", type=int, default=48)
ap.add_argument("--heads", type=int, default=2)
ap.add_argument("--blocks", type=int, default=2)
ap.add_argument("--batch", type=int, default=64)
ap.add_argument("--steps", type=int, default=350)
ap.add_argument("--lr", type=float, default=2e-3)
args = ap.parse_args([])

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
np.random.seed(seed)
torch.manual_seed(seed)


def sessions(n, rng):
    """Item ids 1..items; every item has a few typical successors. Short sessions are padded in front with 0."""
    follow = np.random.default_rng(7).integers(1, args.items + 1, size=(args.items + 1, 3))
    out = np.zeros((n, args.maxlen + 1), dtype=np.int64)
    for r in range(n):
        length = args.maxlen + 1 if rng.random() > 0.0015 else int(rng.integers(4, args.maxlen))
        cur = int(rng.integers(1, args.items + 1))
        for c in range(args.maxlen + 1 - length, args.maxlen + 1):
            out[r, c] = cur
            cur = int(follow[cur, rng.choice(3, p=[0.7, 0.2, 0.1])]) if rng.random() < 0.95 else int(rng.integers(1, args.items + 1))
    return torch.from_numpy(out)


class SelfAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.o = nn.Linear(d, d)

    def forward(self, x, keep):
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        att = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        att = att.masked_fill(~keep, torch.finfo(att.dtype).min if variant == "fixed" else float("-inf"))
        att = att.softmax(-1)
        return self.o((att @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = SelfAttention(d, heads)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2 * d, d))

    def forward(self, x, keep):
        x = x + self.attn(self.ln1(x), keep)
        return x + self.ff(self.ln2(x))


class NextItem(nn.Module):
    def __init__(self):
        super().__init__()
        self.item = nn.Embedding(args.items + 1, args.hidden, padding_idx=0)
        self.pos = nn.Embedding(args.maxlen, args.hidden)
        self.blocks = nn.ModuleList([Block(args.hidden, args.heads) for _ in range(args.blocks)])
        self.norm = nn.LayerNorm(args.hidden)
        self.register_buffer("causal", torch.ones(args.maxlen, args.maxlen, dtype=torch.bool).tril())
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.normal_(self.pos.weight, std=0.1)

    def forward(self, seq):
        real = seq > 0
        keep = self.causal & real[:, None, None, :]
        x = self.item(seq) + self.pos.weight
        for blk in self.blocks:
            x = blk(x, keep)
        return self.norm(x) @ self.item.weight.t()


rng = np.random.default_rng(seed + 50)
train, test = sessions(4000, rng), sessions(500, rng)
net = NextItem()
model = torch.compile(net, backend=backend) if backend else net
opt = torch.optim.AdamW(net.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=1e-2)

curve = []
order = torch.randperm(len(train))
ptr = 0
for step in range(1, args.steps + 1):
    if ptr + args.batch > len(order):
        order, ptr = torch.randperm(len(train)), 0
    rows = train[order[ptr:ptr + args.batch]]
    ptr += args.batch
    inp, tgt = rows[:, :-1], rows[:, 1:]
    logits = model(inp)
    loss = F.cross_entropy(logits[inp > 0], tgt[inp > 0])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    curve.append(loss.item())
    if step % 25 == 0 or step == 1:
        print(f"step {step:4d} | loss {loss.item():.4f}")

net.eval()
with torch.no_grad():
    scores = model(test[:, :-1])[:, -1, 1:]
    top = scores.topk(3, dim=-1).indices + 1
    hit = (top == test[:, -1:]).any(-1).float().mean().item()
num = lambda v: round(v, 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": num(curve[0]), "loss_last": num(float(np.mean(curve[-10:]))),
                  "metric_name": "hit@3", "metric": num(hit), "ok": bool(hit > 0.6)}))
