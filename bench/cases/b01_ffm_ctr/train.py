import os, json, math, random
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import TensorDataset, DataLoader

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)
torch.set_num_threads(1)

CARDS = [60, 24, 7, 40, 12, 30, 5, 80]     # user bucket, hour, weekday, ad, slot, region, device, publisher
LATENT = 12


def make_log(n):
    """click log drawn from a hidden low-rank interaction model"""
    g = np.random.RandomState(1234 + SEED)
    lin = [g.randn(c) * 0.5 for c in CARDS]
    fac = [g.randn(c, 4) * 0.45 for c in CARDS]
    cols = [np.minimum((g.rand(n) ** 1.4 * c).astype(np.int64), c - 1) for c in CARDS]
    z = sum(l[c] for l, c in zip(lin, cols))
    vecs = [f[c] for f, c in zip(fac, cols)]
    s = sum(vecs)
    z = z + 0.5 * ((s ** 2).sum(1) - sum((v ** 2).sum(1) for v in vecs))
    p = 1 / (1 + np.exp(-(z - np.median(z))))
    y = (g.rand(n) < p).astype(np.float32)
    return np.stack(cols, 1), y


class FieldAwareInteraction(nn.Module):
    def __init__(self, cards, k):
        super().__init__()
        self.n_fields = len(cards)
        offs = np.concatenate([[0], np.cumsum(cards)[:-1]])
        self.register_buffer("offsets", torch.as_tensor(offs, dtype=torch.long))
        # one table per "other" field
        self.tables = nn.ModuleList([nn.Embedding(sum(cards), k) for _ in cards])
        if VARIANT == "fixed":
            for t in self.tables:
                nn.init.normal_(t.weight, std=0.05)

    def forward(self, x):
        x = x + self.offsets
        looked_up = [t(x) for t in self.tables]
        out = x.new_zeros(x.size(0), dtype=torch.float32)
        for i in range(self.n_fields):
            for j in range(i + 1, self.n_fields):
                out = out + (looked_up[j][:, i] * looked_up[i][:, j]).sum(-1)
        return out


class FFM(nn.Module):
    def __init__(self, cards, k):
        super().__init__()
        self.first_order = nn.ModuleList([nn.Embedding(c, 1) for c in cards])
        for e in self.first_order:
            nn.init.zeros_(e.weight)
        self.ffm = FieldAwareInteraction(cards, k)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        lin = sum(e(x[:, f]).squeeze(-1) for f, e in enumerate(self.first_order))
        return self.bias + lin + self.ffm(x)


def auc(score, y):
    order = np.argsort(score)
    rank = np.empty(len(score)); rank[order] = np.arange(1, len(score) + 1)
    pos = y == 1
    return (rank[pos].sum() - pos.sum() * (pos.sum() + 1) / 2) / (pos.sum() * (~pos).sum())


X, y = make_log(16000)
Xtr, ytr = torch.as_tensor(X[:13000]), torch.as_tensor(y[:13000])
Xte, yte = torch.as_tensor(X[13000:]), y[13000:]
loader = DataLoader(TensorDataset(Xtr, ytr), batch_size=256, shuffle=True, drop_last=True)

model = FFM(CARDS, LATENT)
net = torch.compile(model, backend=COMPILE) if COMPILE else model
opt = torch.optim.Adagrad(model.parameters(), lr=0.02)

losses = []
for epoch in range(5):
    model.train()
    for xb, yb in loader:
        logit = net(xb)
        loss = F.binary_cross_entropy_with_logits(logit, yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        s = model(Xte).numpy()
    print(f"epoch {epoch}  logloss {np.mean(losses[-50:]):.4f}  test AUC {auc(s, yte):.4f}")

score = float(auc(s, yte)) if np.isfinite(s).all() else 0.5
fin = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(float(np.mean(losses[-20:]))),
                  "metric_name": "test_auc", "metric": score, "ok": bool(score > 0.72)}))
