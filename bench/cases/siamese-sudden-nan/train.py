"""Siamese embedding of handwritten digits, contrastive objective, 1-NN retrieval on held-out digits."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)


class PairDataset(Dataset):
    """half of the pairs share the class, half do not; the partner is drawn anew for every access"""

    def __init__(self, images, labels, seed):
        self.images, self.labels = images, labels
        self.rs = np.random.RandomState(seed)
        self.by_class = {c: np.flatnonzero(labels == c) for c in np.unique(labels)}

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        c = self.labels[i]
        same = self.rs.rand() < 0.5
        if not same:
            c = (c + self.rs.randint(1, 10)) % 10
        j = self.rs.choice(self.by_class[c])
        return self.images[i], self.images[j], np.float32(same)


class EmbeddingNet(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.PReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.PReLU(), nn.MaxPool2d(2))
        self.project = nn.Sequential(nn.Linear(32 * 4, 64), nn.PReLU(), nn.Linear(64, dim))

    def forward(self, x):
        return self.project(self.features(x).flatten(1))


class SiameseNet(nn.Module):
    def __init__(self, embedding_net):
        super().__init__()
        self.embedding_net = embedding_net

    def forward(self, a, b):
        return self.embedding_net(a), self.embedding_net(b)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin
        self.eps = 1e-9 if VARIANT == "fixed" else 0.0

    def forward(self, u, v, same):
        sq = (u - v).pow(2).sum(1)
        dist = (sq + self.eps).sqrt()
        losses = same * dist + (1 - same) * F.relu(self.margin - dist)
        return losses.mean()


@torch.no_grad()
def retrieval_accuracy(net, gallery, gallery_y, query, query_y):
    net.eval()
    g, q = net(gallery), net(query)
    nearest = torch.cdist(q, g).nan_to_num(nan=1e9).argmin(1)
    net.train()
    return (gallery_y[nearest.numpy()] == query_y).mean()


data = load_digits()
x = (data.images.astype(np.float32) / 16.0 - 0.3)[:, None]
order = np.random.permutation(len(x))
tr, te = order[:1200], order[1200:]
loader = DataLoader(PairDataset(x[tr], data.target[tr], SEED + 7), batch_size=48, shuffle=True, drop_last=True)
gallery, query = torch.from_numpy(x[tr]), torch.from_numpy(x[te])

model = SiameseNet(EmbeddingNet())
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
criterion = ContrastiveLoss(margin=1.0)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.88)

log = []
for epoch in range(12):
    running = 0.0
    for a, b, same in loader:
        optimizer.zero_grad()
        loss = criterion(*model(a, b), same)
        loss.backward()
        optimizer.step()
        log.append(loss.item())
        running += log[-1]
    scheduler.step()
    acc = retrieval_accuracy(model.embedding_net, gallery, data.target[tr], query, data.target[te])
    if epoch % 2 == 1:
        print(f"Epoch {epoch + 1}/12  contrastive {running / len(loader):.4f}  1-NN acc {acc:.3f}")


def clean(v):
    return float(v) if math.isfinite(v) else None


print(json.dumps({"loss_first": clean(log[0]), "loss_last": clean(np.mean(log[-20:])),
                  "metric_name": "retrieval_accuracy", "metric": clean(acc), "ok": bool(acc > 0.85)}))
