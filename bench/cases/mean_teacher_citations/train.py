"""Semi-supervised node classification on a citation-like graph: GCN student, averaged teacher, consistency cost."""
import copy
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

N, K, VOCAB, PER_CLASS = 900, 6, 300, 6


def citations():
    z = rng.integers(0, K, N)
    p = np.where(z[:, None] == z[None], 0.022, 0.0018)
    A = np.triu(rng.random((N, N)) < p, 1)
    A = (A | A.T | np.eye(N, dtype=bool)).astype(np.float32)
    d = A.sum(1) ** -0.5
    topics = rng.dirichlet(np.full(VOCAB, 0.25), K)
    X = np.stack([rng.multinomial(18, 0.4 * topics[k] + 0.6 / VOCAB) for k in z]).clip(0, 1)
    X = X / X.sum(1, keepdims=True)
    return torch.tensor(A * d[:, None] * d[None]), torch.tensor(X, dtype=torch.float32), torch.tensor(z)


class GCN(nn.Module):
    def __init__(self, d, h, k):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(d, h, bias=False), nn.Linear(h, k)

    def forward(self, A, x):
        x = F.dropout(x, 0.7, self.training)
        x = F.relu(A @ self.lin1(x))
        x = F.dropout(x, 0.6, self.training)
        return A @ self.lin2(x)


A, X, z = citations()
perm = rng.permutation(N)
labelled = torch.tensor(np.concatenate([[i for i in perm if z[i] == k][:PER_CLASS] for k in range(K)]))
test = torch.tensor([i for i in perm if i not in set(labelled.tolist())][:500])

student = GCN(VOCAB, 32, K)
teacher = copy.deepcopy(student)
for w in teacher.parameters():
    w.requires_grad_(False)
forward = torch.compile(student, backend=BACKEND) if BACKEND else student
opt = torch.optim.Adam([{"params": student.lin1.parameters(), "weight_decay": 5e-3},
                        {"params": student.lin2.parameters(), "weight_decay": 0.0}], lr=1e-2)


@torch.no_grad()
def follow(step):
    a = min(0.99, 1 - 1 / (step + 1))
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.mul_(a).add_(s, alpha=1 - a)


@torch.no_grad()
def score(net):
    net.eval()
    hit = (net(A, X).argmax(1) == z)[test].float().mean().item()
    net.train()
    return hit


EPOCHS, RAMP, MAXW = 400, 150, 60.0
totals, supervised = [], []
for epoch in range(EPOCHS):
    out = forward(A, X)
    with torch.no_grad():
        target = teacher(A, X).softmax(1)
    ce = F.cross_entropy(out[labelled], z[labelled])
    r = min(1.0, epoch / RAMP)
    cost = MAXW * math.exp(-5 * (1 - r) ** 2) * F.mse_loss(out.softmax(1), target)
    loss = ce + cost
    opt.zero_grad()
    loss.backward()
    opt.step()
    follow(epoch)
    totals.append(loss.item())
    supervised.append(ce.item())
    if epoch % 40 == 0:
        print(f"epoch {epoch:3d} total {totals[-1]:.4f} ce {supervised[-1]:.4f} cons {cost.item():.4f} "
              f"student {score(student):.3f} teacher {score(teacher):.3f}")

acc = score(teacher)
print(json.dumps({"loss_first": totals[0], "loss_last": totals[-1], "metric_name": "teacher_test_accuracy", "metric": acc,
                  "ok": acc > 0.8}))
