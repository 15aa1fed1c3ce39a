import json
import math
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)


@dataclass
class Config:
    keys: int = 12
    values: int = 12
    pairs: int = 6
    d_model: int = 128
    heads: int = 1
    layers: int = 2
    lr: float = 3e-3
    steps: int = 240
    batch: int = 32
    warmup: int = 20


cfg = Config()


def batch_of(n, gen):
    """k1 v1 k2 v2 ... kq -> value that went with kq."""
    keys = torch.stack([torch.randperm(cfg.keys, generator=gen)[: cfg.pairs] for _ in range(n)])
    vals = torch.randint(0, cfg.values, (n, cfg.pairs), generator=gen)
    ask = torch.randint(0, cfg.pairs, (n, 1), generator=gen)
    return keys, vals, keys.gather(1, ask), vals.gather(1, ask).squeeze(1)


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h, self.dk = heads, d // heads
        self.query, self.key, self.value, self.out = (nn.Linear(d, d, bias=False) for _ in range(4))
        for m in (self.query, self.key, self.value, self.out):
            nn.init.normal_(m.weight, std=d ** -0.5)

    def split(self, x):
        return x.unflatten(-1, (self.h, self.dk)).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        raw = torch.einsum("bhqd,bhkd->bhqk", q, k)
        if VARIANT == "fixed":
            raw = raw / math.sqrt(self.dk)
        a = F.softmax(raw, dim=-1)
        y = torch.einsum("bhqk,bhkd->bhqd", a, v)
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = Attention(d, heads)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class LookupLM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.key_emb = nn.Embedding(c.keys, c.d_model)
        self.val_emb = nn.Embedding(c.values + 1, c.d_model)
        self.body = nn.ModuleList(Layer(c.d_model, c.heads) for _ in range(c.layers))
        self.final = nn.LayerNorm(c.d_model)
        self.unembed = nn.Linear(c.d_model, c.values, bias=False)

    def forward(self, keys, vals, ask):
        blank = torch.full_like(ask, cfg.values)
        x = self.key_emb(torch.cat([keys, ask], 1)) + self.val_emb(torch.cat([vals, blank], 1))
        for layer in self.body:
            x = layer(x)
        return self.unembed(self.final(x[:, -1]))


gen = torch.Generator().manual_seed(SEED)
held = batch_of(500, torch.Generator().manual_seed(SEED + 999))
model = LookupLM(cfg)
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / cfg.warmup))
curve = []
for step in range(cfg.steps):
    keys, vals, ask, target = batch_of(cfg.batch, gen)
    loss = F.cross_entropy(model(keys, vals, ask), target)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    curve.append(loss.item())
    if step % 40 == 0 or step == cfg.steps - 1:
        with torch.no_grad():
            acc = (model(*held[:3]).argmax(1) == held[3]).float().mean().item()
        print(f"{step:4d} | loss {np.mean(curve[-20:]):.4f} | max {max(curve[-40:]):.3f} | held-out acc {acc:.3f}")
print(json.dumps({"loss_first": curve[0], "loss_last": float(np.mean(curve[-20:])), "metric_name": "heldout_acc", "metric": acc, "ok": acc > 0.9}))
