import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch.utils.data import DataLoader, TensorDataset, random_split

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)

CAT_SIZES = [40, 12, 7, 90, 25]
N_CONT = 6
EMB = 8


def make_click_log(n, rng):
    """Ad click log: five categorical columns and six counters (impressions, page views, dwell ms...)."""
    cats = np.stack([rng.integers(0, c, n) for c in CAT_SIZES], 1)
    logs = rng.normal([3.0, 5.0, 2.0, 6.5, 4.0, 1.5], [1.0, 1.2, 0.8, 1.0, 1.3, 0.7], (n, N_CONT))
    counts = np.floor(np.exp(logs))
    z = (np.log1p(counts) - np.log1p(counts).mean(0)) / np.log1p(counts).std(0)
    effects = [rng.normal(0, 0.7, c) for c in CAT_SIZES]
    logit = sum(e[cats[:, i]] for i, e in enumerate(effects))
    logit = logit + 0.9 * z[:, 0] - 0.7 * z[:, 1] + 0.8 * z[:, 2] * z[:, 3] - 0.6 * z[:, 4] + 0.3 * z[:, 5]
    y = rng.random(n) < 1 / (1 + np.exp(-(logit - 0.5)))
    return cats, counts, y.astype(np.float32)


def prepare(counts):
    if VARIANT == "fixed":
        c = np.log1p(counts)
        return (c - c.mean(0)) / c.std(0)
    return counts


class FMLayer(nn.Module):
    def forward(self, v):                     # (B, fields, emb)
        square_of_sum = v.sum(1).pow(2)
        sum_of_square = v.pow(2).sum(1)
        return 0.5 * (square_of_sum - sum_of_square).sum(1)


class DeepFM(nn.Module):
    def __init__(self, cat_sizes, n_cont, emb=8, hidden=(64, 32)):
        super().__init__()
        self.first_cat = nn.ModuleList([nn.Embedding(c, 1) for c in cat_sizes])
        self.second_cat = nn.ModuleList([nn.Embedding(c, emb) for c in cat_sizes])
        self.first_cont = nn.Linear(n_cont, 1)
        self.second_cont = nn.Parameter(torch.randn(n_cont, emb) * 0.1)
        for e in list(self.first_cat) + list(self.second_cat):
            nn.init.normal_(e.weight, std=0.05)
        self.fm = FMLayer()
        layers, d = [], (len(cat_sizes) + n_cont) * emb
        for h in hidden:
            layers += [nn.Linear(d, h), nn.ReLU(), nn.Dropout(0.1)]
            d = h
        self.deep = nn.Sequential(*layers, nn.Linear(d, 1))

    def forward(self, cats, cont):
        first = sum(e(cats[:, i]) for i, e in enumerate(self.first_cat)).squeeze(1)
        first = first + self.first_cont(cont).squeeze(1)
        v_cat = torch.stack([e(cats[:, i]) for i, e in enumerate(self.second_cat)], 1)
        v_cont = cont.unsqueeze(2) * self.second_cont
        v = torch.cat([v_cat, v_cont], 1)
        return first + self.fm(v) + self.deep(v.flatten(1)).squeeze(1)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    p, t = [], []
    for cats, cont, y in loader:
        p.append(model(cats, cont))
        t.append(y)
    model.train()
    p = torch.nan_to_num(torch.cat(p)).numpy()
    return roc_auc_score(torch.cat(t).numpy(), p)


rng = np.random.default_rng(SEED + 7)
cats, counts, y = make_click_log(9000, rng)
cont = prepare(counts)
ds = TensorDataset(torch.tensor(cats), torch.tensor(cont, dtype=torch.float32), torch.tensor(y))
train_ds, valid_ds = random_split(ds, [7500, 1500], generator=torch.Generator().manual_seed(SEED))
train_dl = DataLoader(train_ds, batch_size=128, shuffle=True)
valid_dl = DataLoader(valid_ds, batch_size=500)

model = DeepFM(CAT_SIZES, N_CONT, EMB)
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, weight_decay=1e-5)

losses = []
for epoch in range(6):
    for xb, cb, yb in train_dl:
        logits = model(xb, cb)
        loss = F.binary_cross_entropy_with_logits(logits, yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {np.mean(losses[-59:]):.4f} valid auc {evaluate(model, valid_dl):.4f}")

auc = evaluate(model, valid_dl)
last = float(np.mean(losses[-20:]))
ok = bool(auc > 0.8 and np.isfinite(last))
num = lambda v: float(v) if np.isfinite(v) else None
print(json.dumps({"loss_first": num(losses[0]), "loss_last": num(last), "metric_name": "valid_auc", "metric": num(auc), "ok": ok}))
