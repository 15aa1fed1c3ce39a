"""Small non-autoregressive TTS acoustic model: phonemes + durations -> mel frames."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")

random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
torch.set_num_threads(1)


class hp:
    n_phones = 40
    n_mels = 40
    dim = 64
    heads = 4
    ff = 128
    enc_layers = 2
    dec_layers = 2
    batch = 12
    steps = 150
    frozen_learning_rate = 1e-2 if VARIANT == "faulty" else 1e-3


def synth_corpus(n_utt, rng, bank):
    """every phone has a spectral envelope; the neighbours colour it (coarticulation)"""
    base, left, right = bank
    utts = []
    for _ in range(n_utt):
        L = 12
        ph = rng.integers(1, hp.n_phones, size=L)
        dur = rng.integers(2, 5, size=L)
        frames = []
        for i in range(L):
            lo = left[ph[i - 1]] if i > 0 else 0.0
            hi = right[ph[i + 1]] if i + 1 < L else 0.0
            env = base[ph[i]] + 0.6 * lo + 0.6 * hi
            frames += [env] * dur[i]
        mel = np.stack(frames)[:36]
        mel = mel + 0.05 * rng.standard_normal(mel.shape)
        utts.append((ph, dur, mel.astype(np.float32)))
    return utts


def collate(utts):
    T = max(len(u[2]) for u in utts)
    ph = torch.from_numpy(np.stack([u[0] for u in utts])).long()
    align = torch.zeros(len(utts), T, dtype=torch.long)
    mel = torch.zeros(len(utts), T, hp.n_mels)
    mask = torch.zeros(len(utts), T)
    for b, (p, d, m) in enumerate(utts):
        idx = np.repeat(np.arange(len(p)), d)[:36]
        align[b, : len(idx)] = torch.from_numpy(idx)
        mel[b, : len(m)] = torch.from_numpy(m)
        mask[b, : len(m)] = 1
    return ph, align, mel, mask


class FFTBlock(nn.Module):
    def __init__(self, d, heads, ff):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.conv1 = nn.Conv1d(d, ff, 3, padding=1)
        self.conv2 = nn.Conv1d(ff, d, 1)
        self.norm1 = nn.LayerNorm(d)
        self.norm2 = nn.LayerNorm(d)

    def forward(self, x):
        a, _ = self.attn(x, x, x, need_weights=False)
        x = self.norm1(x + a)
        h = self.conv2(F.relu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)
        return self.norm2(x + h)


def sinusoid(T, d):
    pos = torch.arange(T)[:, None]
    div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
    pe = torch.zeros(T, d)
    pe[:, 0::2] = torch.sin(pos * div)
    pe[:, 1::2] = torch.cos(pos * div)
    return pe


class AcousticModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.phone_emb = nn.Embedding(hp.n_phones, hp.dim)
        self.register_buffer("pe", sinusoid(64, hp.dim))
        self.encoder = nn.ModuleList([FFTBlock(hp.dim, hp.heads, hp.ff) for _ in range(hp.enc_layers)])
        self.decoder = nn.ModuleList([FFTBlock(hp.dim, hp.heads, hp.ff) for _ in range(hp.dec_layers)])
        self.mel_out = nn.Linear(hp.dim, hp.n_mels)

    def forward(self, ph, align):
        x = self.phone_emb(ph) + self.pe[: ph.size(1)]
        for blk in self.encoder:
            x = blk(x)
        x = torch.gather(x, 1, align.unsqueeze(-1).expand(-1, -1, x.size(-1)))
        x = x + self.pe[: x.size(1)]
        for blk in self.decoder:
            x = blk(x)
        return self.mel_out(x)


def masked_mse(pred, mel, mask):
    return (((pred - mel) ** 2).mean(-1) * mask).sum() / mask.sum()


def main():
    rng = np.random.default_rng(SEED + 7)
    k = np.linspace(-2, 2, hp.n_mels)
    bank = []
    for _ in range(3):
        c = rng.uniform(-2, 2, size=(hp.n_phones, 3, 1))
        a = rng.standard_normal((hp.n_phones, 3, 1))
        bank.append((a * np.exp(-((k - c) ** 2) / 0.3)).sum(1))
    train = synth_corpus(600, rng, bank)
    val = collate(synth_corpus(64, rng, bank))

    model = AcousticModel()
    net = torch.compile(model, backend=BACKEND) if BACKEND else model
    opt = torch.optim.Adam(model.parameters(), lr=hp.frozen_learning_rate, betas=(0.9, 0.98), eps=1e-9)

    losses = []
    for step in range(hp.steps):
        batch = [train[i] for i in rng.choice(len(train), hp.batch, replace=False)]
        ph, align, mel, mask = collate(batch)
        loss = masked_mse(net(ph, align), mel, mask)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
        if step % 25 == 0:
            print(f"step {step:4d}  mel loss {losses[-1]:.4f}")

    model.eval()
    with torch.no_grad():
        ph, align, mel, mask = val
        err = masked_mse(model(ph, align), mel, mask).item()
        ref = masked_mse(torch.zeros_like(mel) + mel[mask > 0].mean(0), mel, mask).item()
    ratio = err / ref
    ok = bool(np.isfinite(ratio) and ratio < 0.35)
    fin = lambda v: float(v) if np.isfinite(v) else None
    print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(np.mean(losses[-10:])),
                      "metric_name": "val_unexplained_mel_variance", "metric": fin(ratio), "ok": ok}))


if __name__ == "__main__":
    main()
