"""Transformer encoder trained to write a token string backwards, with linear warm-up and decay."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

VOCAB, LENGTH, D = 16, 10, 64


class Reverser(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, D)
        self.pos = nn.Parameter(torch.randn(LENGTH, D) * 0.3)
        layer = nn.TransformerEncoderLayer(D, nhead=4, dim_feedforward=128, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(D), enable_nested_tensor=False)
        self.lm = nn.Linear(D, VOCAB)

    def forward(self, ids):
        return self.lm(self.encoder(self.tok(ids) + self.pos))


def linear_schedule(optimizer, num_warmup, num_total):
    def factor(current):
        if current < num_warmup:
            return current / max(1, num_warmup)
        return max(0.0, (num_total - current) / max(1, num_total - num_warmup))
    return LambdaLR(optimizer, factor)


class Trainer:
    def __init__(self, model, train, valid, lr=1.5e-3, epochs=8):
        self.net = model
        self.model = torch.compile(model, backend=COMPILE) if COMPILE else model
        self.train_dl, self.valid_dl, self.epochs = train, valid, epochs
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
        total = epochs * len(train)
        self.scheduler = linear_schedule(self.optimizer, num_warmup=total // 5, num_total=total)
        self.history = []

    def on_batch_end(self):
        if VARIANT == "fixed":
            self.scheduler.step()

    def on_epoch_end(self, epoch):
        if VARIANT != "fixed":
            self.scheduler.step()
        acc = self.evaluate()
        print(f"epoch {epoch + 1:2d}/{self.epochs}  loss {np.mean(self.history[-len(self.train_dl):]):.4f}  token acc {acc:.3f}")
        return acc

    @torch.no_grad()
    def evaluate(self):
        self.net.eval()
        hits = [(self.model(x).argmax(-1) == y).float().mean().item() for x, y in self.valid_dl]
        self.net.train()
        return float(np.mean(hits))

    def fit(self):
        acc = 0.0
        for epoch in range(self.epochs):
            for x, y in self.train_dl:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(x).flatten(0, 1), y.flatten())
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                self.optimizer.step()
                self.history.append(loss.item())
                self.on_batch_end()
            acc = self.on_epoch_end(epoch)
        return acc


def strings(n):
    x = torch.randint(0, VOCAB, (n, LENGTH))
    return TensorDataset(x, x.flip(1))


trainer = Trainer(Reverser(), DataLoader(strings(5760), 64, shuffle=True), DataLoader(strings(512), 128))
accuracy = trainer.fit()
h = trainer.history
print(json.dumps({"loss_first": round(h[0], 4), "loss_last": round(float(np.mean(h[-10:])), 4),
                  "metric_name": "token_accuracy", "metric": round(accuracy, 4), "ok": bool(accuracy > 0.95)}))
