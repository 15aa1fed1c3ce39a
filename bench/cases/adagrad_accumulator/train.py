"""Click prediction with hashed categorical features and Adagrad, the usual optimizer for sparse inputs."""
import json
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
rng = np.random.default_rng(SEED)
FIELDS, CARD = 5, 40
hidden_w = rng.normal(size=(FIELDS, CARD)) * 1.2
hidden_v = rng.normal(size=(FIELDS, CARD, 2)) * 0.8


def impressions(n):
    f = rng.integers(0, CARD, (n, FIELDS))
    lin = hidden_w[np.arange(FIELDS), f].sum(1)
    v = hidden_v[np.arange(FIELDS), f]
    inter = (v.sum(1) ** 2 - (v ** 2).sum(1)).sum(1) / 2
    p = 1 / (1 + np.exp(-(lin + inter)))
    return torch.tensor(f), torch.tensor((rng.random(n) < p), dtype=torch.float32)


class FM(nn.Module):
    """Factorisation machine."""

    def __init__(self, k=6):
        super().__init__()
        self.register_buffer("offset", torch.arange(FIELDS) * CARD)
        self.linear = nn.Embedding(FIELDS * CARD, 1)
        self.factor = nn.Embedding(FIELDS * CARD, k)
        self.bias = nn.Parameter(torch.zeros(()))
        nn.init.zeros_(self.linear.weight)
        nn.init.normal_(self.factor.weight, std=0.1)

    def forward(self, f):
        idx = f + self.offset
        v = self.factor(idx)
        pair = (v.sum(1) ** 2 - (v ** 2).sum(1)).sum(1) / 2
        return self.bias + self.linear(idx).sum((1, 2)) + pair


options = dict(lr=0.25)
if VARIANT != "fixed":
    options["initial_accumulator_value"] = 1e6
model = FM()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
optimizer = torch.optim.Adagrad(model.parameters(), **options)
F_tr, y_tr = impressions(9000)
F_te, y_te = impressions(3000)
hist = []
for step in range(350):
    b = torch.randint(0, len(F_tr), (160,))
    loss = nn.functional.binary_cross_entropy_with_logits(net(F_tr[b]), y_tr[b])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hist.append(loss.item())
    if step % 70 == 0:
        print(f"step {step} logloss {loss.item():.4f}")
with torch.no_grad():
    p = net(F_te)
    acc = ((p > 0).float() == y_te).float().mean().item()
last = float(np.mean(hist[-30:]))
print(json.dumps({"loss_first": hist[0], "loss_last": last, "metric_name": "accuracy", "metric": acc, "ok": bool(acc > 0.72 and last < 0.6)}))
