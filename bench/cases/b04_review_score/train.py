import os
import json
import math
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

CFG = dict(variant=os.environ.get("CASE_VARIANT", "faulty"), seed=int(os.environ.get("CASE_SEED", 0)),
           backend=os.environ.get("CASE_COMPILE", ""), vocab=300, maxlen=24, dim=48, heads=4, layers=2,
           bs=32, lr=1e-3, warmup=30, epochs=5)
random.seed(CFG["seed"]); np.random.seed(CFG["seed"]); torch.manual_seed(CFG["seed"])
torch.set_num_threads(1)


class DocScores(Dataset):
    """Documents as token ids with a grade from 0 to 16."""

    def __init__(self, n, rng, polarity):
        self.docs, self.grades = [], []
        for _ in range(n):
            L = rng.integers(10, CFG["maxlen"])
            mood = rng.normal(0, 1)
            w = np.exp(0.9 * mood * polarity)
            ids = rng.choice(CFG["vocab"], size=L, p=w / w.sum())
            s = polarity[ids].mean() * 2.2
            self.docs.append(np.pad(ids + 2, (1, CFG["maxlen"] - L), constant_values=(1, 0)))
            self.grades.append(float(np.clip(8 + 4 * s + rng.normal(0, 0.3), 0, 16)))

    def __len__(self):
        return len(self.docs)

    def __getitem__(self, i):
        return {"ids": torch.as_tensor(self.docs[i]), "label": torch.tensor([self.grades[i]], dtype=torch.float32)}


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        d = CFG["dim"]
        self.tok = nn.Embedding(CFG["vocab"] + 2, d, padding_idx=0)
        self.pos = nn.Parameter(torch.zeros(CFG["maxlen"] + 1, d))
        layer = nn.TransformerEncoderLayer(d, CFG["heads"], 2 * d, dropout=0.1, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, CFG["layers"], enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d)

    def forward(self, ids):
        pad = ids.eq(0)
        h = self.enc(self.tok(ids) + self.pos, src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).float()
        return self.norm((h * keep).sum(1) / keep.sum(1))


class RegressionHead(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.proj = nn.Linear(d, 1)
        self.loss_fct = nn.MSELoss()

    def forward(self, x):
        return self.proj(x).squeeze(-1)

    def compute_loss(self, logits, label, scale):
        if CFG["variant"] == "fixed":
            label = label.squeeze(-1)
        return self.loss_fct(logits, (label - scale[0]) / scale[1])


class AdaptiveModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.language_model = Backbone()
        self.prediction_head = RegressionHead(CFG["dim"])

    def forward(self, ids):
        return self.prediction_head(self.language_model(ids))


def evaluate(model, loader, scale):
    model.eval()
    p, t = [], []
    with torch.no_grad():
        for b in loader:
            p += (model(b["ids"]) * scale[1] + scale[0]).tolist()
            t += b["label"].flatten().tolist()
    model.train()
    p, t = np.array(p), np.array(t)
    return float(1 - ((p - t) ** 2).mean() / t.var()), float(p.std())


def main():
    rng = np.random.default_rng(CFG["seed"] + 11)
    polarity = rng.normal(0, 1, CFG["vocab"])
    train, dev = DocScores(1600, rng, polarity), DocScores(400, rng, polarity)
    scale = (float(np.mean(train.grades)), float(np.std(train.grades)))
    dl = DataLoader(train, batch_size=CFG["bs"], shuffle=True, drop_last=True)
    dev_dl = DataLoader(dev, batch_size=100)
    model = AdaptiveModel()
    run = torch.compile(model, backend=CFG["backend"]) if CFG["backend"] else model
    opt = torch.optim.AdamW(model.parameters(), lr=CFG["lr"], weight_decay=0.01)
    total = CFG["epochs"] * len(dl)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / CFG["warmup"], max(0.05, (total - s) / (total - CFG["warmup"]))))
    losses = []
    for ep in range(CFG["epochs"]):
        for batch in dl:
            logits = run(batch["ids"])
            loss = model.prediction_head.compute_loss(logits, batch["label"], scale)
            loss.backward()
            opt.step(); sched.step(); opt.zero_grad()
            losses.append(loss.item())
        r2, spread = evaluate(model, dev_dl, scale)
        print(f"Train epoch {ep + 1}/{CFG['epochs']} cur. loss {np.mean(losses[-20:]):.4f} dev R2 {r2:.3f} pred std {spread:.3f}")
    f = lambda v: v if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(losses[0]), "loss_last": f(float(np.mean(losses[-20:]))), "metric_name": "dev_r2",
                      "metric": f(r2), "ok": bool(r2 > 0.6)}))


main()
