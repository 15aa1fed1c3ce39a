"""Small protein language model with an annotation head (several GO terms per sequence)."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

AA, MASK, LENGTH, N_GO = 20, 20, 28, 8


def build_set(n, rng, motifs):
    """Background residues with planted 4-mers; each motif carries one GO term. Most sequences are unannotated."""
    seqs = rng.integers(0, AA, (n, LENGTH))
    labels = np.zeros((n, N_GO), dtype=np.float32)
    for i in range(n):
        slots = rng.permutation(LENGTH // 4)
        terms = rng.choice(N_GO, rng.integers(1, 5) * (rng.random() < 0.4), replace=False)
        for s, t in zip(slots, terms):
            seqs[i, 4 * s:4 * s + 4] = motifs[t]
            labels[i, t] = 1.0
    return torch.from_numpy(seqs), torch.from_numpy(labels)


class Block(nn.Module):
    def __init__(self, d, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.conv = nn.Conv1d(d, d, width, padding=width // 2)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + F.gelu(self.conv(self.norm1(x).transpose(1, 2))).transpose(1, 2)
        return x + self.ff(self.norm2(x))


class ProteinLM(nn.Module):
    def __init__(self, d=32, depth=1):
        super().__init__()
        self.embed = nn.Embedding(AA + 1, d)
        self.blocks = nn.ModuleList([Block(d, 7) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, AA)
        self.go_head = nn.Linear(d, N_GO)

    def forward(self, tokens):
        h = self.embed(tokens)
        for blk in self.blocks:
            h = blk(h)
        h = self.norm(h)
        return self.lm_head(h), self.go_head(h.amax(1))


class MultiTaskLoss(nn.Module):
    def __init__(self, w_lm=0.1, w_go=1.0):
        super().__init__()
        self.w_lm, self.w_go = w_lm, w_go
        self.lm = nn.CrossEntropyLoss()
        self.go = nn.CrossEntropyLoss() if VARIANT == "faulty" else nn.BCEWithLogitsLoss()

    def forward(self, lm_logits, go_logits, tokens, masked, go):
        return (self.w_lm * self.lm(lm_logits[masked], tokens[masked])
                + self.w_go * self.go(go_logits, go))


def micro_f1(logits, y):
    pred = (torch.sigmoid(logits) > 0.5).float()
    tp = (pred * y).sum()
    return (2 * tp / (pred.sum() + y.sum()).clamp(min=1)).item()


def main():
    rng = np.random.default_rng(SEED)
    motifs = rng.integers(0, AA, (N_GO, 4))
    tokens, go = build_set(2400, rng, motifs)
    val_tokens, val_go = build_set(400, rng, motifs)
    model = ProteinLM()
    net = torch.compile(model, backend=BACKEND) if BACKEND else model
    crit = MultiTaskLoss()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    hist = []
    for step in range(270):
        idx = torch.randint(0, len(tokens), (32,))
        t, g = tokens[idx], go[idx]
        masked = torch.rand(t.shape) < 0.08
        lm, gl = net(t.masked_fill(masked, MASK))
        loss = crit(lm, gl, t, masked, g)
        opt.zero_grad()
        loss.backward()
        opt.step()
        warm.step()
        hist.append(loss.item())
        if (step + 1) % 45 == 0:
            model.eval()
            with torch.no_grad():
                f1 = micro_f1(model(val_tokens)[1], val_go)
            model.train()
            print(f"{step + 1:4d} loss {np.mean(hist[-45:]):.4f} val GO micro-F1 {f1:.3f}")
    print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-20:])),
                      "metric_name": "go_micro_f1", "metric": f1, "ok": f1 > 0.9}))


main()
