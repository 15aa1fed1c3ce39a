"""Digit rows as tokens, post-norm transformer encoder, inverse-square-root schedule with a long linear warm-up."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

D_MODEL, WARMUP, STEPS, FACTOR = 32, 200, 360, 0.6


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, D_MODEL)
        self.pos = nn.Parameter(torch.randn(8, D_MODEL) * 0.1)
        layer = nn.TransformerEncoderLayer(D_MODEL, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(D_MODEL, 10)

    def forward(self, rows):
        return self.out(self.encoder(self.proj(rows) + self.pos).mean(1))


d = load_digits()
x, y = torch.tensor(d.images / 8.0 - 1.0, dtype=torch.float32), torch.tensor(d.target)
perm = torch.randperm(len(x))
tr, te = perm[:1400], perm[1400:]
net = Encoder()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.Adam(net.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
noam = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: FACTOR * D_MODEL ** -0.5 * min((s + 1) ** -0.5, (s + 1) * WARMUP ** -1.5))

hist = []
for step in range(STEPS):
    i = tr[torch.randint(0, len(tr), (48,))]
    loss = F.cross_entropy(model(x[i]), y[i], label_smoothing=0.1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    noam.step()
    hist.append(loss.item())
    if step % 40 == 0:
        print(f"step {step} lr {noam.get_last_lr()[0]:.2e} loss {loss.item():.4f}")

net.eval()
with torch.no_grad():
    acc = (model(x[te]).argmax(1) == y[te]).float().mean().item()
r = lambda v: round(float(v), 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": r(hist[0]), "loss_last": r(np.mean(hist[-10:])), "metric_name": "test_accuracy", "metric": r(acc),
                  "ok": bool(acc > 0.88)}))
