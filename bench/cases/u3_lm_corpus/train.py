import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import ConcatDataset, DataLoader, Dataset

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(seed)
torch.set_num_threads(1)

VOCAB, BLOCK = 24, 32
SOURCES = ["wiki", "code", "forum", "legal"]


class MarkovSource:
    """Toy text source: every domain has its own bigram habits over a shared vocabulary."""

    def __init__(self, rng):
        self.table = np.zeros((VOCAB, VOCAB))
        for a in range(VOCAB):
            nxt = rng.choice(VOCAB, 3, replace=False)
            self.table[a, nxt] = [0.7, 0.2, 0.06]
        self.table += 0.04 / VOCAB
        self.table /= self.table.sum(1, keepdims=True)
        self.cdf = self.table.cumsum(1)

    def sample(self, n, rng):
        out = np.zeros((n, BLOCK + 1), dtype=np.int64)
        out[:, 0] = rng.integers(0, VOCAB, n)
        for t in range(BLOCK):
            r = rng.random((n, 1))
            out[:, t + 1] = np.minimum((self.cdf[out[:, t]] < r).sum(1), VOCAB - 1)
        return out

    def entropy(self):
        return float(-(self.table * np.log(self.table)).sum(1).mean())


class BlockDataset(Dataset):
    def __init__(self, tokens):
        self.tokens = torch.from_numpy(tokens)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, k):
        chunk = self.tokens[k]
        return chunk[:-1], chunk[1:]


class GatedLM(nn.Module):
    def __init__(self, d=80):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.norm = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, VOCAB)

    def forward(self, idx):
        h, _ = self.rnn(self.wte(idx))
        return self.lm_head(self.norm(h))


def nll(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def pretrain(net, loader, lr=5e-3, warmup=15, log_every=50):
    model = torch.compile(net, backend=backend) if backend else net
    opt = torch.optim.AdamW(net.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warmup))
    history = []
    for step, (x, y) in enumerate(loader):
        loss = nll(model, x, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        history.append(loss.item())
        if step % log_every == 0 or step == len(loader) - 1:
            print(f"step {step:4d}/{len(loader)} loss {history[-1]:.3f} ppl {math.exp(min(history[-1], 20)):.1f}")
    return history


def main():
    rng = np.random.default_rng(100 + seed)
    sources = [MarkovSource(rng) for _ in SOURCES]
    corpus = ConcatDataset([BlockDataset(s.sample(2560, rng)) for s in sources])
    loader = DataLoader(corpus, batch_size=32, shuffle=(variant == "fixed"), drop_last=True)

    net = GatedLM()
    print(f"{len(corpus)} blocks, {sum(p.numel() for p in net.parameters())} parameters, one pass")
    history = pretrain(net, loader)

    net.eval()
    gaps = []
    with torch.no_grad():
        for name, src in zip(SOURCES, sources):
            held = torch.from_numpy(src.sample(150, rng))
            val = nll(net, held[:, :-1], held[:, 1:]).item()
            gaps.append(val - src.entropy())
            print(f"  {name:6s} val loss {val:.3f} (entropy of the source {src.entropy():.3f})")
    gap = float(np.mean(gaps))
    safe = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": safe(history[0]), "loss_last": safe(np.mean(history[-20:])),
                      "metric_name": "excess_nats_per_token", "metric": safe(gap), "ok": bool(gap < 0.7)}))


if __name__ == "__main__":
    main()
