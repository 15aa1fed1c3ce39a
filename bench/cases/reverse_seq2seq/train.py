"""Encoder-decoder with cross attention that has to write a token sequence backwards."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")

VOCAB, LENGTH, DIM, HEADS = 24, 12, 256, 1
PAD_BOS = VOCAB


def scaled_dot_product(query, key, value, mask=None):
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key)
    if VARIANT == "fixed":
        scores = scores / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, -1e9)
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(dim=-1), value)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def split(self, t):
        return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, context=None, mask=None):
        context = x if context is None else context
        out = scaled_dot_product(self.split(self.to_q(x)), self.split(self.to_k(context)),
                                 self.split(self.to_v(context)), mask)
        return self.to_out(out.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.ff(self.n2(x))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2, self.n3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.self_attn = Attention(dim, heads)
        self.cross_attn = Attention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, y, memory, causal):
        y = y + self.self_attn(self.n1(y), mask=causal)
        y = y + self.cross_attn(self.n2(y), memory)
        return y + self.ff(self.n3(y))


def sinusoid(n, dim):
    pos = torch.arange(n).unsqueeze(1)
    div = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    return torch.stack([torch.sin(pos * div), torch.cos(pos * div)], -1).flatten(1)


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_emb = nn.Embedding(VOCAB, DIM)
        self.tgt_emb = nn.Embedding(VOCAB + 1, DIM)
        self.encoder = EncoderLayer(DIM, HEADS)
        self.decoder = DecoderLayer(DIM, HEADS)
        self.norm = nn.LayerNorm(DIM)
        self.generator = nn.Linear(DIM, VOCAB)
        self.register_buffer("pe", sinusoid(LENGTH, DIM), persistent=False)
        self.register_buffer("causal", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, src, tgt):
        m = self.encoder(self.src_emb(src) * math.sqrt(DIM) + self.pe)
        y = self.decoder(self.tgt_emb(tgt) * math.sqrt(DIM) + self.pe, m, self.causal)
        return self.generator(self.norm(y))


def sample(n):
    src = torch.randint(0, VOCAB, (n, LENGTH))
    gold = src.flip(1)
    tgt = torch.cat([torch.full((n, 1), PAD_BOS), gold[:, :-1]], 1)
    return src, tgt, gold


def warmup(step, peak=60):
    return min((step + 1) / peak, math.sqrt(peak / (step + 1)))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    net = Seq2Seq()
    model = torch.compile(net, backend=BACKEND) if BACKEND else net
    opt = torch.optim.Adam(net.parameters(), lr=5e-4, betas=(0.9, 0.98), eps=1e-9)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, warmup)
    losses = []
    for step in range(180):
        src, tgt, gold = sample(24)
        logits = model(src, tgt)
        loss = F.cross_entropy(logits.flatten(0, 1), gold.flatten(), label_smoothing=0.02)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        losses.append(loss.item())
        if step % 50 == 49:
            print(f"step {step + 1} loss {np.mean(losses[-25:]):.4f} lr {sched.get_last_lr()[0]:.2e}")
    net.eval()
    with torch.no_grad():
        src, tgt, gold = sample(256)
        acc = (model(src, tgt).argmax(-1) == gold).float().mean().item()
    fin = lambda v: float(v) if math.isfinite(v) else None
    print(f"teacher-forced token accuracy {acc:.3f}")
    print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(np.mean(losses[-10:])),
                      "metric_name": "token_accuracy", "metric": fin(acc), "ok": bool(acc > 0.9)}))


if __name__ == "__main__":
    main()
