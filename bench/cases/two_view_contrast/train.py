"""Contrastive alignment of two unshared encoders: one sees the left half of a digit, the other the right half."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")


def setup_seed(s):
    torch.set_num_threads(1)
    torch.manual_seed(s)
    np.random.seed(s)


class HardPairNet(nn.Module):
    def __init__(self, n_in, hidden, out):
        super().__init__()
        self.enc_a = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out))
        self.enc_b = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out))

    def forward(self, a, b):
        return F.normalize(self.enc_a(a), dim=1), F.normalize(self.enc_b(b), dim=1)


def pair_loss(za, zb, tau=0.2, beta=1.0):
    """InfoNCE over both directions; pairs that look hard get a larger weight."""
    sim = za @ zb.t()
    n = sim.size(0)
    eye = torch.eye(n, dtype=torch.bool)
    with torch.no_grad():
        w = ((sim - sim.mean()).abs() + 0.5) ** beta
        w = torch.where(eye, torch.ones_like(w), w / w[~eye].mean())
    e = w * torch.exp(sim / tau)
    pos = sim.diag() / tau
    return -(pos - e.sum(1).log()).mean() / 2 - (pos - e.sum(0).log()).mean() / 2


@torch.no_grad()
def retrieval(model, a, b, chunk=100):
    model.eval()
    hits = []
    for i in range(0, len(a) - chunk + 1, chunk):
        za, zb = model(a[i:i + chunk], b[i:i + chunk])
        top = (za @ zb.t()).topk(5, dim=1).indices
        hits.append((top == torch.arange(chunk)[:, None]).any(1).float().mean().item())
    model.train()
    return float(np.mean(hits))


def train(model, a, b, epochs=24, batch=128, lr=3e-3):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    forward = torch.compile(model, backend=backend) if backend else model
    acc, losses = [], []
    model.train()
    optimizer.zero_grad()
    for epoch in range(epochs):
        for idx in torch.randperm(len(a)).split(batch):
            za, zb = forward(a[idx], b[idx])
            loss = pair_loss(za, zb)
            if variant == "fixed":
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if epoch % 3 == 0:
            acc.append(retrieval(model, a, b))
            print("epoch {:02d} | loss {:.4f} | train top-5 {:.3f}".format(epoch, losses[-1], acc[-1]))
    return losses


setup_seed(seed)
x = load_digits().images.astype(np.float32) / 16.0
x = x[np.random.permutation(len(x))]
left, right = torch.tensor(x[:, :, :4].reshape(len(x), -1)), torch.tensor(x[:, :, 4:].reshape(len(x), -1))
left, right = left - left.mean(0), right - right.mean(0)
net = HardPairNet(32, 128, 32)
losses = train(net, left[:1400], right[:1400])
top5 = retrieval(net, left[1400:], right[1400:])
print("held-out top-5 retrieval: {:.3f}".format(top5))
fin = lambda v: round(v, 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(float(np.mean(losses[-11:]))), "metric_name": "heldout_top5_retrieval",
                  "metric": fin(top5), "ok": top5 > 0.65}))
