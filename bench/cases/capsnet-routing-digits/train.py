"""Small capsule network with dynamic routing on the 8x8 digits."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)

INIT_SIGMA = 0.01 if VARIANT == "faulty" else 0.1
BATCH = 32
STEPS = 160


def squash(s, dim=-1, eps=1e-7):
    sq = (s * s).sum(dim, keepdim=True)
    return (sq / (1.0 + sq)) * s / torch.sqrt(sq + eps)


class PrimaryCaps(nn.Module):
    def __init__(self, in_ch, n_maps, dim):
        super().__init__()
        self.dim = dim
        self.conv = nn.Conv2d(in_ch, n_maps * dim, 3, stride=2)

    def forward(self, x):
        h = self.conv(x)
        b = h.shape[0]
        h = h.view(b, -1, self.dim, h.shape[2] * h.shape[3])
        h = h.transpose(2, 3).reshape(b, -1, self.dim)
        return squash(h)


class DigitCaps(nn.Module):
    def __init__(self, n_in, d_in, n_out, d_out, rounds=2):
        super().__init__()
        self.rounds = rounds
        self.W = nn.Parameter(torch.randn(n_in, n_out, d_out, d_in) * INIT_SIGMA)

    def forward(self, u):
        u_hat = torch.einsum("iojk,bik->bioj", self.W, u)
        logits = torch.zeros(u_hat.shape[:3], device=u.device)
        for r in range(self.rounds):
            c = F.softmax(logits, dim=2)
            v = squash((c.unsqueeze(-1) * u_hat).sum(1))
            if r < self.rounds - 1:
                logits = logits + (u_hat * v.unsqueeze(1)).sum(-1)
        return v


class CapsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU())
        self.primary = PrimaryCaps(32, 8, 4)
        self.digits = DigitCaps(8 * 9, 4, 10, 8)

    def forward(self, x):
        v = self.digits(self.primary(self.stem(x)))
        return torch.sqrt((v * v).sum(-1) + 1e-7)


def margin_loss(lengths, y, m_plus=0.9, m_minus=0.1, lam=0.5):
    t = F.one_hot(y, 10).float()
    present = F.relu(m_plus - lengths) ** 2
    absent = F.relu(lengths - m_minus) ** 2
    return (t * present + lam * (1 - t) * absent).sum(1).mean()


def main():
    X, y = load_digits(return_X_y=True)
    X = (X / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    Xtr, Xte, ytr, yte = train_test_split(X, y, test_size=0.25, random_state=SEED, stratify=y)
    Xtr, Xte = torch.from_numpy(Xtr), torch.from_numpy(Xte)
    ytr, yte = torch.from_numpy(ytr), torch.from_numpy(yte)

    net = CapsNet()
    fwd = torch.compile(net, backend=COMPILE) if COMPILE else net
    opt = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)

    losses, order = [], torch.randperm(len(Xtr))
    pos = 0
    for step in range(STEPS):
        if pos + BATCH > len(order):
            order, pos = torch.randperm(len(Xtr)), 0
        idx = order[pos:pos + BATCH]
        pos += BATCH
        loss = margin_loss(fwd(Xtr[idx]), ytr[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        if step % 20 == 0:
            print(f"batch {step:4d}  margin loss {losses[-1]:.4f}")

    net.eval()
    with torch.no_grad():
        acc = (net(Xte).argmax(1) == yte).float().mean().item()
    first, last = losses[0], float(np.mean(losses[-10:]))
    print(json.dumps({"loss_first": first if math.isfinite(first) else None,
                      "loss_last": last if math.isfinite(last) else None,
                      "metric_name": "test_accuracy", "metric": acc, "ok": acc > 0.85}))


if __name__ == "__main__":
    main()
