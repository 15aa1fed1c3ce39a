"""Energy-based model on two moons: persistent contrastive divergence with Langevin sampling."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import make_moons
from sklearn.metrics import roc_auc_score

SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)


class Energy(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class ReplayBuffer:
    def __init__(self, size):
        self.data = torch.rand(size, 2) * 6 - 3

    def draw(self, n, p_fresh=0.05):
        self.idx = torch.randperm(len(self.data))[:n]
        x = self.data[self.idx].clone()
        fresh = torch.rand(n) < p_fresh
        x[fresh] = torch.rand(int(fresh.sum()), 2) * 6 - 3
        return x

    def put(self, x):
        self.data[self.idx] = x


def langevin(energy, x, steps=15, step=0.1, noise=0.1):
    for p in energy.parameters():
        p.requires_grad_(False)
    for _ in range(steps):
        x = x.detach().requires_grad_(True)
        (g,) = torch.autograd.grad(energy(x).sum(), x)
        x = (x - step * g.clamp(-5, 5) + noise * torch.randn_like(x)).clamp(-3, 3)
    for p in energy.parameters():
        p.requires_grad_(True)
    return x.detach()


data, _ = make_moons(3000, noise=0.06, random_state=SEED)
data = torch.tensor((data - data.mean(0)) / data.std(0), dtype=torch.float32)
train, held = data[:2500], data[2500:]

energy = Energy()
model = torch.compile(energy, backend=COMPILE) if COMPILE else energy
opt = torch.optim.Adam(energy.parameters(), lr=3e-3, betas=(0.0, 0.99))
buffer = ReplayBuffer(1500)

losses = []
for it in range(380):
    pos = train[torch.randint(0, len(train), (128,))] + 0.02 * torch.randn(128, 2)
    neg = langevin(energy, buffer.draw(128))
    buffer.put(neg)
    e_pos, e_neg = model(pos), model(neg)
    loss = e_pos.mean() - e_neg.mean() + 0.02 * (e_pos ** 2 + e_neg ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if it % 50 == 0:
        print(f"it {it} contrastive gap {loss.item():+.4f} E+ {e_pos.mean().item():+.3f} E- {e_neg.mean().item():+.3f}")

# does the learned energy tell held-out data from uniform clutter?
with torch.no_grad():
    clutter = torch.rand(500, 2) * 5 - 2.5
    score = torch.cat([energy(held), energy(clutter)]).numpy()
auc = roc_auc_score(np.r_[np.zeros(len(held)), np.ones(500)], score)
print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-20:])), "metric_name": "energy_auc",
                  "metric": float(auc), "ok": bool(auc > 0.78)}))
