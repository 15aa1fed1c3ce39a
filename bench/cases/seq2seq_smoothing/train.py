"""Sequence to sequence: rewrite a list of digits in sorted order; GRU encoder, attention decoder, label smoothing, warm restarts."""
import json
import math
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD, BOS, EOS, FIRST = 0, 1, 2, 3


@dataclass
class HParams:
    seed: int = int(os.environ.get("CASE_SEED", "0"))
    backend: str = os.environ.get("CASE_COMPILE", "")
    symbols: int = 20
    max_len: int = 9
    dim: int = 64
    batch: int = 32
    accumulate: int = 2
    updates: int = 700
    smoothing: float = 0.3
    lr: float = 4e-3
    cycle: int = 175


class Encoder(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.embed = nn.Embedding(hp.symbols + FIRST, hp.dim, padding_idx=PAD)
        self.gru = nn.GRU(hp.dim, hp.dim // 2, batch_first=True, bidirectional=True)

    def forward(self, src, lengths):
        packed = pack_padded_sequence(self.embed(src), lengths, batch_first=True, enforce_sorted=False)
        out, h = self.gru(packed)
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=src.size(1))
        return out, torch.cat([h[0], h[1]], -1)


class Decoder(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.embed = nn.Embedding(hp.symbols + FIRST, hp.dim, padding_idx=PAD)
        self.cell = nn.GRU(hp.dim, hp.dim, batch_first=True)
        self.query = nn.Linear(hp.dim, hp.dim, bias=False)
        self.mix = nn.Linear(2 * hp.dim, hp.dim)
        self.out = nn.Linear(hp.dim, hp.symbols + FIRST)

    def forward(self, tokens, memory, mask, h):
        y, h = self.cell(self.embed(tokens), h)
        score = self.query(y) @ memory.transpose(1, 2) / math.sqrt(y.size(-1))
        ctx = score.masked_fill(mask[:, None], -1e9).softmax(-1) @ memory
        return self.out(torch.tanh(self.mix(torch.cat([y, ctx], -1)))), h


class Sorter(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.encoder, self.decoder = Encoder(hp), Decoder(hp)

    def forward(self, src, lengths, tgt_in):
        memory, h = self.encoder(src, lengths)
        return self.decoder(tgt_in, memory, src == PAD, h[None])[0]

    @torch.no_grad()
    def greedy(self, src, lengths, steps):
        memory, h = self.encoder(src, lengths)
        h, token, said = h[None], torch.full((len(src), 1), BOS), []
        for _ in range(steps):
            logits, h = self.decoder(token, memory, src == PAD, h)
            token = logits.argmax(-1)
            said.append(token)
        return torch.cat(said, 1)


def batch_of(n, hp, rng):
    lengths = np.minimum(2 + rng.geometric(0.35, n), hp.max_len)
    src = np.full((n, hp.max_len), PAD)
    tgt = np.full((n, hp.max_len + 2), PAD)
    tgt[:, 0] = BOS
    for i, k in enumerate(lengths):
        word = rng.integers(FIRST, FIRST + hp.symbols, k)
        src[i, :k], tgt[i, 1:k + 1], tgt[i, k + 1] = word, np.sort(word), EOS
    return torch.from_numpy(src), torch.from_numpy(lengths), torch.from_numpy(tgt)


def main():
    hp = HParams()
    torch.set_num_threads(1)
    torch.manual_seed(hp.seed)
    rng = np.random.default_rng(hp.seed)
    model = Sorter(hp)
    fwd = torch.compile(model, backend=hp.backend) if hp.backend else model
    opt = torch.optim.AdamW(model.parameters(), lr=hp.lr, betas=(0.9, 0.98), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, hp.cycle)
    trace = []
    for update in range(hp.updates):
        opt.zero_grad()
        total = 0.0
        for _ in range(hp.accumulate):
            src, lengths, tgt = batch_of(hp.batch, hp, rng)
            logits = fwd(src, lengths, tgt[:, :-1])
            loss = F.cross_entropy(logits.transpose(1, 2), tgt[:, 1:], ignore_index=PAD, label_smoothing=hp.smoothing)
            (loss / hp.accumulate).backward()
            total += loss.item() / hp.accumulate
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        trace.append(total)
        if update % 70 == 0:
            print(f"update {update:4d}  loss {total:.4f}  lr {opt.param_groups[0]['lr']:.2e}")

    model.eval()
    src, lengths, tgt = batch_of(400, hp, rng)
    said = model.greedy(src, lengths, hp.max_len + 1)
    want = tgt[:, 1:]
    exact = ((said == want) | (want == PAD)).all(1).float().mean().item()
    print(f"exactly sorted: {exact:.3f}")
    fin = lambda v: round(v, 4) if math.isfinite(v) else None
    print(json.dumps({"loss_first": fin(trace[0]), "loss_last": fin(float(np.mean(trace[-20:]))), "metric_name": "exact_match",
                      "metric": fin(exact), "ok": bool(exact > 0.7)}))


if __name__ == "__main__":
    main()
