"""Angular-margin (ArcFace-like) training on digits with a planar embedding, for plotting."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)


class Backbone(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(64, 128), nn.BatchNorm1d(128), nn.PReLU(),
            nn.Linear(128, 64), nn.BatchNorm1d(64), nn.PReLU())
        self.embed = nn.Linear(64, dim)

    def forward(self, x):
        return self.embed(self.trunk(x))


class AngularMargin(nn.Module):
    def __init__(self, dim, n_classes, scale=16.0, margin=0.1):
        super().__init__()
        self.scale = scale
        ang = torch.arange(n_classes) * 2 * math.pi / n_classes + 0.1 * torch.rand(n_classes)
        self.centers = nn.Parameter(torch.stack([ang.cos(), ang.sin()], 1))
        self.cos_m, self.sin_m = math.cos(margin), math.sin(margin)
        self.th = math.cos(math.pi - margin)
        self.mm = math.sin(math.pi - margin) * margin
        self.floor = 0.0 if VARIANT == "faulty" else 1e-6

    def cosine(self, emb):
        return F.linear(F.normalize(emb), F.normalize(self.centers))

    def forward(self, emb, target):
        cos = self.cosine(emb)
        sin = torch.sqrt((1.0 - cos.pow(2)).clamp(self.floor, 1))
        shifted = cos * self.cos_m - sin * self.sin_m
        shifted = torch.where(cos > self.th, shifted, cos - self.mm)
        onehot = F.one_hot(target, cos.shape[1]).float()
        return self.scale * (onehot * shifted + (1 - onehot) * cos)


class Recognizer(nn.Module):
    def __init__(self, dim=2, n_classes=10):
        super().__init__()
        self.backbone = Backbone(dim)
        self.margin = AngularMargin(dim, n_classes)

    def forward(self, x, y):
        return self.margin(self.backbone(x), y)


def nearest_center_accuracy(rec, X, y):
    rec.eval()
    with torch.no_grad():
        cos = rec.margin.cosine(rec.backbone(X))
    rec.train()
    hit = (cos.argmax(1) == y) & torch.isfinite(cos).all(1)
    return hit.float().mean().item()


def main():
    X, y = load_digits(return_X_y=True)
    Xtr, Xte, ytr, yte = train_test_split(X / 16.0, y, test_size=0.2, random_state=SEED, stratify=y)
    as_x = lambda a: torch.tensor(a, dtype=torch.float32)
    loader = DataLoader(TensorDataset(as_x(Xtr), torch.tensor(ytr)), batch_size=96, shuffle=True, drop_last=True)
    Xte, yte = as_x(Xte), torch.tensor(yte)

    rec = Recognizer()
    net = torch.compile(rec, backend=COMPILE) if COMPILE else rec
    opt = torch.optim.Adam(rec.parameters(), lr=5e-3, weight_decay=1e-5)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.93)
    log = []
    for epoch in range(24):
        for xb, yb in loader:
            loss = F.cross_entropy(net(xb, yb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            log.append(loss.item())
        sched.step()
        if epoch % 4 == 3:
            print(f"epoch {epoch + 1:2d} loss {np.mean(log[-len(loader):]):.4f} "
                  f"test acc {nearest_center_accuracy(rec, Xte, yte):.4f}")
    acc = nearest_center_accuracy(rec, Xte, yte)
    num = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": num(log[0]), "loss_last": num(float(np.mean(log[-20:]))),
                      "metric_name": "test_accuracy", "metric": acc, "ok": acc > 0.85}))


if __name__ == "__main__":
    main()
