"""Clothing-pattern retrieval: embedding network trained with a classification head, evaluated by nearest neighbours."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

FREEZE_PARAM = VARIANT != "fixed"
CATEGORIES, SIZE = 8, 20


def pattern(kind, n):
    """stripes at four angles, checks at two scales, dots, plain knit"""
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    out = np.empty((n, SIZE, SIZE))
    for i in range(n):
        ph, ph2, k = np.random.uniform(0, 6.28, 3)[0], np.random.uniform(0, 6.28), np.random.uniform(0.9, 1.1)
        if kind < 4:
            a = math.pi * kind / 4 + np.random.normal(0, 0.08)
            g = np.sin(k * (math.cos(a) * xx + math.sin(a) * yy) * 1.3 + ph)
        elif kind < 6:
            w = k * (1.3 if kind == 4 else 0.65)
            g = np.sign(np.sin(w * xx + ph) * np.sin(w * yy + ph2))
        elif kind == 6:
            g = 2.0 * ((np.sin(k * xx + ph) * np.sin(k * yy + ph2)) > 0.5) - 0.5
        else:
            g = np.random.normal(0, 0.8, (SIZE, SIZE))
        out[i] = np.random.uniform(0.4, 1.0) * g + np.random.normal(0, 0.6, (SIZE, SIZE)) + np.random.normal(0, 0.5)
    return out


def dataset(per_class):
    x = np.concatenate([pattern(c, per_class) for c in range(CATEGORIES)])
    y = np.repeat(np.arange(CATEGORIES), per_class)
    return torch.tensor(x, dtype=torch.float32).unsqueeze(1), torch.tensor(y)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5, stride=2, padding=2)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(16)
        self.conv3 = nn.Conv2d(16, 16, 3, padding=1)
        self.bn3 = nn.BatchNorm2d(16)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return F.relu(self.bn3(self.conv3(x))).mean((2, 3))


class RetrievalNet(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.backbone = Backbone()
        if FREEZE_PARAM:
            for p in self.backbone.parameters():
                p.requires_grad = False
        self.embed = nn.Linear(16, dim)
        self.classifier = nn.Linear(dim, CATEGORIES)

    def forward(self, x):
        e = self.embed(self.backbone(x))
        return e, self.classifier(e)


gallery_x, gallery_y = dataset(100)
query_x, query_y = dataset(30)
net = RetrievalNet()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, net.parameters()), lr=5e-3)

losses = []
net.train()
for step in range(200):
    idx = torch.randint(0, len(gallery_x), (40,))
    emb, logits = model(gallery_x[idx])
    loss = F.cross_entropy(logits, gallery_y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 40 == 0:
        print(f"step {step}\tclass loss {loss.item():.4f}")

net.eval()
with torch.no_grad():
    g, q = F.normalize(model(gallery_x)[0], dim=1), F.normalize(model(query_x)[0], dim=1)
    top5 = (q @ g.t()).topk(5, dim=1).indices
    precision = (gallery_y[top5] == query_y[:, None]).float().mean().item()
r = lambda v: round(float(v), 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": r(losses[0]), "loss_last": r(np.mean(losses[-10:])), "metric_name": "precision_at_5",
                  "metric": r(precision), "ok": bool(precision > 0.8)}))
