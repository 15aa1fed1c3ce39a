"""Chromatin feature prediction from one-hot DNA windows (a small DeepSEA-like net)."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")

torch.set_num_threads(2)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

FACTORS = ["CTCF", "GATA1", "MAX", "NRSF", "SP1", "YY1"]
MOTIF_LEN = 7
WINDOW = 80


def make_windows(n, motifs):
    seqs = rng.integers(0, 4, size=(n, WINDOW))
    marks = np.zeros((n, len(motifs)), dtype=np.float32)
    slots = WINDOW // 10
    for i in range(n):
        bound = np.flatnonzero(rng.random(len(motifs)) < 0.15)
        where = rng.permutation(slots)[: len(bound)]
        for k, s in zip(bound, where):
            start = s * 10 + rng.integers(0, 3)
            site = motifs[k].copy()
            if rng.random() < 0.3:
                site[rng.integers(0, MOTIF_LEN)] = rng.integers(0, 4)
            seqs[i, start:start + MOTIF_LEN] = site
            marks[i, k] = 1.0
    return seqs, marks


class Peaks(Dataset):
    def __init__(self, seqs, marks, augment=False):
        self.x = torch.from_numpy(np.eye(4, dtype=np.float32)[seqs]).transpose(1, 2).contiguous()
        self.y = torch.from_numpy(marks)
        self.augment = augment

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        if self.augment:
            x = torch.roll(x, int(torch.randint(-2, 3, (1,))), dims=1)
        return x, self.y[i]


class ConvTower(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.scan = nn.Conv1d(4, width, 9, padding=4)
        self.norm = nn.BatchNorm1d(width)
        self.mix = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, x):
        h = F.relu(self.norm(self.scan(x)))
        h = F.relu(self.mix(F.max_pool1d(h, 2)) + F.max_pool1d(h, 2))
        return h.amax(dim=-1)


class PeakCaller(nn.Module):
    def __init__(self, n_out):
        super().__init__()
        self.tower = ConvTower()
        self.head = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, n_out))

    def forward(self, x):
        return self.head(self.tower(x))


def criterion(logits, y):
    if VARIANT == "fixed":
        return F.binary_cross_entropy_with_logits(logits, y)
    return F.cross_entropy(logits, y)


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    tp = called = present = 0.0
    for x, y in loader:
        call = (torch.sigmoid(net(x)) > 0.5).float()
        tp += (call * y).sum().item()
        called += call.sum().item()
        present += y.sum().item()
    net.train()
    precision, recall = tp / max(called, 1.0), tp / max(present, 1.0)
    return 2 * tp / max(called + present, 1.0), precision, recall


motifs = [rng.integers(0, 4, size=MOTIF_LEN) for _ in FACTORS]
train_dl = DataLoader(Peaks(*make_windows(1920, motifs), augment=True), batch_size=64, shuffle=True, drop_last=True)
valid_dl = DataLoader(Peaks(*make_windows(600, motifs)), batch_size=200)

net = PeakCaller(len(FACTORS))
if BACKEND:
    net = torch.compile(net, backend=BACKEND)
opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-3)
EPOCHS = 8
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=6e-3, total_steps=EPOCHS * len(train_dl))

history = []
for epoch in range(EPOCHS):
    for x, y in train_dl:
        opt.zero_grad(set_to_none=True)
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
        sched.step()
        history.append(loss.item())
    f1, precision, recall = evaluate(net, valid_dl)
    print(f"epoch {epoch} loss {np.mean(history[-len(train_dl):]):.4f} F1 {f1:.3f} precision {precision:.3f} recall {recall:.3f}")

clean = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": clean(history[0]), "loss_last": clean(history[-1]),
                  "metric_name": "val_micro_f1", "metric": clean(f1), "ok": bool(f1 > 0.75)}))
