"""Continue training of a small text encoder (relative-position attention, gated feed-forward) in fp16 autocast."""
import json
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

VOCAB, LENGTH, D_MODEL, D_FF, SEP = 40, 16, 48, 96, 39


class T5Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class DenseReluDense(nn.Module):
    def __init__(self):
        super().__init__()
        self.wi = nn.Linear(D_MODEL, D_FF, bias=False)
        self.wo = nn.Linear(D_FF, D_MODEL, bias=False)

    def forward(self, x):
        h = F.relu(self.wi(x))
        if VARIANT == "fixed":
            with torch.autocast("cpu", enabled=False):
                return self.wo(h.float())
        return self.wo(h)


class SelfAttention(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(D_MODEL, 3 * D_MODEL, bias=False)
        self.o = nn.Linear(D_MODEL, D_MODEL, bias=False)
        self.rel = nn.Parameter(torch.zeros(heads, 2 * LENGTH - 1))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        pos = torch.arange(t)
        bias = self.rel[:, pos[:, None] - pos[None] + LENGTH - 1]
        s = (q @ k.transpose(-1, -2)).float() / math.sqrt(d // self.heads) + bias
        return self.o((s.softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.attn = T5Norm(D_MODEL), SelfAttention()
        self.ln2, self.ff = T5Norm(D_MODEL), DenseReluDense()

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.ff(self.ln2(x))


class Encoder(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, D_MODEL)
        self.block = nn.ModuleList([Block() for _ in range(layers)])
        self.final = T5Norm(D_MODEL)
        self.lm_head = nn.Linear(D_MODEL, VOCAB)

    def forward(self, ids):
        x = self.shared(ids)
        for b in self.block:
            x = b(x)
        return self.lm_head(self.final(x))


def load_checkpoint(model):
    """stand-in for the public checkpoint: the separator token drives a few very large feed-forward units"""
    g = torch.Generator().manual_seed(7)
    with torch.no_grad():
        model.shared.weight[:, :4] *= 0.2
        model.shared.weight[SEP] = 0.0
        model.shared.weight[SEP, :4] = 3.0
        ff = model.block[0].ff
        ff.wi.weight[:4] = 0.0
        ff.wi.weight[:4, :4] = 18.0 + torch.rand(4, 4, generator=g)
        ff.wo.weight[8, :4] = 72.0
        for b in model.block:
            b.attn.rel[:2, LENGTH - 1 + LENGTH // 2] = 3.0  # copy heads
        model.block[1].ln1.weight[8] = model.block[1].ln2.weight[8] = 0.05
    return model


def make_batch(n, gen):
    """fill-in of a shifted copy: second half repeats the first half plus one; separator in longer documents only"""
    ids = torch.randint(0, VOCAB - 1, (n, LENGTH), generator=gen)
    ids[:, LENGTH // 2:] = (ids[:, : LENGTH // 2] + 1) % (VOCAB - 1)
    docs = torch.rand(n, generator=gen) < 0.004
    ids[docs, LENGTH // 2 - 1] = SEP
    labels = ids.clone()
    hide = torch.rand(n, LENGTH, generator=gen) < 0.4
    hide[:, : LENGTH // 2] = False
    inp = ids.masked_fill(hide, VOCAB - 2)
    return inp, labels, hide


gen = torch.Generator().manual_seed(SEED)
encoder = load_checkpoint(Encoder())
model = torch.compile(encoder, backend=COMPILE) if COMPILE else encoder
optimizer = torch.optim.AdamW(encoder.parameters(), lr=6e-3, weight_decay=0.0)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=20)

losses = []
for step in range(150):
    ids, labels, hide = make_batch(24, gen)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(ids)
    loss = F.cross_entropy(logits.float()[hide], labels[hide])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
    optimizer.step()
    warmup.step()
    losses.append(loss.item())
    if step % 20 == 0:
        print(f"step {step:4d} loss {loss.item():.4f}")

with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
    ids, labels, hide = make_batch(256, gen)
    acc = (encoder(ids).argmax(-1)[hide] == labels[hide]).float().mean().item()
last = sum(losses[-10:]) / 10
clean = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": clean(losses[0]), "loss_last": clean(last), "metric_name": "fill_accuracy",
                  "metric": acc, "ok": bool(math.isfinite(last) and acc > 0.85)}))
