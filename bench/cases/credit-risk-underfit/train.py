"""Probability-of-default model: categorical embeddings + numeric features, residual MLP."""
import json
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import QuantileTransformer

SEED = int(os.environ.get("CASE_SEED", 0))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)


@dataclass
class Config:
    n_rows: int = 9000
    width: int = 64
    n_blocks: int = 3
    emb_dim: int = 4
    keep_prob: float = 0.9
    lr: float = 3e-3
    weight_decay: float = 1e-4
    batch_size: int = 256
    accumulate: int = 1
    epochs: int = 12


def make_portfolio(cfg, rs):
    n = cfg.n_rows
    age = rs.uniform(21, 75, n)
    income = rs.lognormal(10.4, 0.5, n)
    debt = income * rs.beta(2, 4, n) * 1.4
    limit = rs.lognormal(9.0, 0.6, n)
    util = rs.beta(1.2, 1.8, n)
    late = rs.poisson(0.7, n)
    tenure = rs.exponential(5, n)
    region = rs.randint(0, 10, n)
    purpose = rs.randint(0, 6, n)
    channel = rs.randint(0, 3, n)
    dti = debt / income
    region_fx = rs.normal(0, 0.8, 10)
    purpose_fx = rs.normal(0, 1.0, 6)
    z = (3.5 * np.sin(4.5 * util) * np.where(dti > 0.45, 1.0, -1.0)
         + 1.6 * np.where(channel == 1, -1.0, 1.0) * (late - 0.7)
         + region_fx[region] + purpose_fx[purpose]
         + 2.2 * (((age - 45) / 15) ** 2 - 1.0) - 0.6)
    y = (rs.uniform(size=n) < 1 / (1 + np.exp(-1.4 * z))).astype(np.float32)
    num = np.stack([age, income, debt, dti, limit, util, late, tenure], 1)
    cat = np.stack([region, purpose, channel], 1)
    return num, cat, y


class ResidualBlock(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.ff = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Dropout(p),
                                nn.Linear(2 * width, width), nn.Dropout(p))

    def forward(self, h):
        return h + self.ff(self.norm(h))


class DefaultRiskNet(nn.Module):
    def __init__(self, cfg, n_num, cardinalities):
        super().__init__()
        p = 1.0 - cfg.keep_prob if VARIANT == "fixed" else cfg.keep_prob
        self.embeddings = nn.ModuleList([nn.Embedding(c, cfg.emb_dim) for c in cardinalities])
        self.project = nn.Linear(n_num + cfg.emb_dim * len(cardinalities), cfg.width)
        self.drop_in = nn.Dropout(p)
        self.blocks = nn.ModuleList([ResidualBlock(cfg.width, p) for _ in range(cfg.n_blocks)])
        self.head = nn.Sequential(nn.LayerNorm(cfg.width), nn.SiLU(), nn.Linear(cfg.width, 1))

    def forward(self, num, cat):
        e = [emb(cat[:, j]) for j, emb in enumerate(self.embeddings)]
        h = self.drop_in(self.project(torch.cat([num] + e, 1)))
        for blk in self.blocks:
            h = blk(h)
        return self.head(h).squeeze(1)


def score(model, num, cat, y):
    model.eval()
    with torch.inference_mode():
        s = model(num, cat)
    model.train()
    return roc_auc_score(y.numpy(), s.numpy())


def run(cfg):
    num, cat, y = make_portfolio(cfg, np.random.RandomState(SEED))
    cut = int(0.8 * len(y))
    qt = QuantileTransformer(n_quantiles=200, output_distribution="normal", random_state=0).fit(num[:cut])
    num = torch.tensor(np.clip(qt.transform(num), -3, 3), dtype=torch.float32)
    cat, y = torch.tensor(cat), torch.tensor(y)

    model = DefaultRiskNet(cfg, num.shape[1], [10, 6, 3])
    if COMPILE:
        model = torch.compile(model, backend=COMPILE)
    decay = [p for n, p in model.named_parameters() if p.ndim > 1 and "embeddings" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim <= 1 or "embeddings" in n]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": cfg.weight_decay},
                             {"params": rest, "weight_decay": 0.0}], lr=cfg.lr)
    steps = cfg.epochs * (cut // cfg.batch_size)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    bce = nn.BCEWithLogitsLoss()

    curve = []
    for epoch in range(cfg.epochs):
        order = torch.randperm(cut)
        for b in range(cut // cfg.batch_size):
            idx = order[b * cfg.batch_size:(b + 1) * cfg.batch_size]
            loss = bce(model(num[idx], cat[idx]), y[idx])
            loss.backward()
            opt.step()
            opt.zero_grad()
            sched.step()
            curve.append(loss.item())
        if epoch % 3 == 2:
            print("epoch %2d  bce %.4f  train AUC %.3f  test AUC %.3f" % (
                epoch + 1, np.mean(curve[-28:]), score(model, num[:cut], cat[:cut], y[:cut]),
                score(model, num[cut:], cat[cut:], y[cut:])))
    return curve, score(model, num[cut:], cat[cut:], y[cut:])


curve, auc = run(Config())
print(json.dumps({"loss_first": curve[0], "loss_last": float(np.mean(curve[-28:])),
                  "metric_name": "test_auc", "metric": float(auc), "ok": bool(auc > 0.88)}))
