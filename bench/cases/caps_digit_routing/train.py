"""Small capsule network (dynamic routing) on the 8x8 digits."""
import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)

INIT_SIGMA = 0.1 if VARIANT == "fixed" else 0.01


def squash(s, dim=-1, eps=1e-7):
    n2 = (s * s).sum(dim, keepdim=True)
    return n2 / (1 + n2) * s / torch.sqrt(n2 + eps)


class PrimaryCaps(nn.Module):
    def __init__(self, in_ch, n_maps, caps_dim):
        super().__init__()
        self.caps_dim = caps_dim
        self.conv = nn.Conv2d(in_ch, n_maps * caps_dim, 3, stride=1)

    def forward(self, x):
        u = self.conv(x)
        b, c, h, w = u.shape
        u = u.view(b, c // self.caps_dim, self.caps_dim, h, w).permute(0, 1, 3, 4, 2)
        return squash(u.reshape(b, -1, self.caps_dim))


class DigitCaps(nn.Module):
    def __init__(self, n_in, d_in, n_out, d_out, rounds=2):
        super().__init__()
        self.rounds = rounds
        self.W = nn.Parameter(INIT_SIGMA * torch.randn(n_in, n_out, d_out, d_in))

    def forward(self, u):
        u_hat = torch.einsum("ijdk,bik->bijd", self.W, u)
        logits = torch.zeros(u_hat.shape[:3])
        for r in range(self.rounds):
            c = logits.softmax(dim=2).unsqueeze(-1)
            v = squash((c * u_hat).sum(1))
            if r + 1 < self.rounds:
                logits = logits + (u_hat * v.unsqueeze(1)).sum(-1)
        return v


class CapsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 32, 3)
        self.primary = PrimaryCaps(32, 3, 8)
        self.digit = DigitCaps(3 * 4 * 4, 8, 10, 8)

    def forward(self, x):
        v = self.digit(self.primary(F.relu(self.stem(x))))
        return torch.sqrt((v * v).sum(-1) + 1e-7)


def margin_loss(length, target):
    t = F.one_hot(target, 10).float()
    present = t * F.relu(0.9 - length) ** 2
    absent = 0.5 * (1 - t) * F.relu(length - 0.1) ** 2
    return (present + absent).sum(1).mean()


digits = load_digits()
x = torch.tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(1)
y = torch.tensor(digits.target)
tr, te = train_test_split(range(len(y)), test_size=297, random_state=SEED, stratify=y)
tr, te = torch.tensor(tr), torch.tensor(te)

model = CapsNet()
if BACKEND:
    model = torch.compile(model, backend=BACKEND)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)

history = []
step, max_steps, bs = 0, 200, 32
while step < max_steps:
    perm = tr[torch.randperm(len(tr))]
    for k in range(0, len(perm), bs):
        b = perm[k:k + bs]
        loss = margin_loss(model(x[b]), y[b])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        if step % 30 == 0:
            print(f"step {step:4d}  margin loss {history[-1]:.4f}")
        step += 1
        if step == max_steps:
            break

with torch.no_grad():
    acc = (model(x[te]).argmax(1) == y[te]).float().mean().item()
print(f"test accuracy {acc:.3f}")
print(json.dumps({"loss_first": history[0], "loss_last": sum(history[-10:]) / 10, "metric_name": "test_accuracy",
                  "metric": acc, "ok": acc > 0.8}))
