import json
import math
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
VOCAB, LENGTH, DIM, CLASSES = 80, 14, 48, 6


def corpus(n, seed, domain):
    """Utterances: a few cue words of the intent among filler, the cue lexicon depends on the domain."""
    g = np.random.default_rng(seed)
    lex = np.random.default_rng(900 + domain).permutation(VOCAB)[: CLASSES * 6].reshape(CLASSES, 6)
    y = g.integers(0, CLASSES, n)
    ids = g.integers(0, VOCAB, (n, LENGTH))
    for row, c in enumerate(y):
        where = g.choice(LENGTH, 4, replace=False)
        ids[row, where] = g.choice(lex[c], 4)
    return torch.tensor(ids), torch.tensor(y)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(LENGTH, DIM) * 0.02)
        self.attn_qkv, self.attn_out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.fc_in, self.fc_out = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, ids):
        x = self.embed(ids) + self.pos
        q, k, v = self.attn_qkv(self.norm1(x)).chunk(3, -1)
        w = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(DIM), -1)
        x = x + self.attn_out(w @ v)
        x = x + self.fc_out(torch.relu(self.fc_in(self.norm2(x))))
        return self.head(x.mean(1))


class LoRALinear(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scaling = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.t() @ self.lora_B.t()) * self.scaling


def inject(model, names, rank):
    for p in model.parameters():
        p.requires_grad_(False)
    for n in names:
        setattr(model, n, LoRALinear(getattr(model, n), rank))
    return model


class Trainer:
    def __init__(self, model, lr, epochs, batch_size=40, clear_after_step=True):
        self.model, self.epochs, self.bs = model, epochs, batch_size
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.params, lr=lr, weight_decay=0.0)
        self.clear = clear_after_step
        self.criterion = nn.CrossEntropyLoss()
        self.losses = []

    def training_step(self, ids, y):
        loss = self.criterion(self.model(ids), y)
        loss.backward()
        self.optimizer.step()
        if self.clear:
            self.optimizer.zero_grad()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, ids, y):
        return (self.model(ids).argmax(1) == y).float().mean().item()

    def fit(self, train, val):
        ids, y = train
        for ep in range(self.epochs):
            for idx in torch.randperm(len(y)).split(self.bs):
                self.losses.append(self.training_step(ids[idx], y[idx]))
            print(f"epoch {ep} loss {np.mean(self.losses[-20:]):.4f} val acc {self.evaluate(*val):.3f}")
        return self.evaluate(*val)


base = Encoder()
print("pre-training")
Trainer(base, lr=3e-3, epochs=3).fit(corpus(1600, SEED, 0), corpus(400, SEED + 50, 0))

print("adapter tuning")
model = inject(base, ["attn_qkv", "attn_out", "fc_in", "fc_out"], rank=8)
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
tuner = Trainer(model, lr=2e-3, epochs=6, clear_after_step=VARIANT == "fixed")
acc = tuner.fit(corpus(1600, SEED + 1, 1), corpus(400, SEED + 51, 1))
num = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": num(tuner.losses[0]), "loss_last": num(np.mean(tuner.losses[-20:])), "metric_name": "val_acc", "metric": acc, "ok": acc > 0.85}))
