import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
np.random.seed(SEED)
torch.manual_seed(SEED)
torch.set_num_threads(1)

N_ATOMS = 7
Z_EPS = np.array([1.0, 0.6, 1.6])
Z_SIG = np.array([1.0, 0.85, 1.1])


def lj_forces(pos, z):
    d = pos[:, None] - pos[None]
    r = np.sqrt((d ** 2).sum(-1) + np.eye(len(pos)))
    eps = np.sqrt(Z_EPS[z][:, None] * Z_EPS[z][None])
    sig = 0.5 * (Z_SIG[z][:, None] + Z_SIG[z][None])
    s6 = (sig / r) ** 6
    f = 24 * eps * (2 * s6 ** 2 - s6) / r ** 2
    np.fill_diagonal(f, 0)
    return (f[..., None] * d).sum(1)


def sample_conformer(rng, min_dist):
    pos = np.zeros((0, 3))
    while len(pos) < N_ATOMS:
        c = rng.normal(0, 1.3, 3)
        if len(pos) == 0 or np.linalg.norm(pos - c, axis=1).min() > min_dist:
            pos = np.vstack([pos, c])
    return pos


class ConformerSet(Dataset):
    """Conformers with reference forces; a share comes from the high-temperature sampler."""

    def __init__(self, n, seed, hot=0.015):
        rng = np.random.default_rng(seed)
        self.pos, self.z, self.f = [], [], []
        for _ in range(n):
            z = rng.integers(0, 3, N_ATOMS)
            pos = sample_conformer(rng, 0.5 if rng.random() < hot else 0.98)
            self.pos.append(pos)
            self.z.append(z)
            self.f.append(lj_forces(pos, z))
        self.pos = torch.tensor(np.array(self.pos), dtype=torch.float32)
        self.z = torch.tensor(np.array(self.z))
        self.f = torch.tensor(np.array(self.f), dtype=torch.float32)

    def select(self, keep):
        self.pos, self.z, self.f = self.pos[keep], self.z[keep], self.f[keep]

    def __len__(self):
        return len(self.pos)

    def __getitem__(self, i):
        return self.pos[i], self.z[i], self.f[i]


class RadialBasis(nn.Module):
    def __init__(self, n=24, lo=0.7, hi=5.0):
        super().__init__()
        self.register_buffer("centers", torch.linspace(lo, hi, n))
        self.gamma = (n / (hi - lo)) ** 2 / 2

    def forward(self, r):
        return torch.exp(-self.gamma * (r.unsqueeze(-1) - self.centers) ** 2)


class ForceNet(nn.Module):
    def __init__(self, dim=16, hidden=64):
        super().__init__()
        self.species = nn.Embedding(3, dim)
        self.rbf = RadialBasis()
        self.edge_mlp = nn.Sequential(nn.Linear(24 + 2 * dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, pos, z):
        d = pos.unsqueeze(2) - pos.unsqueeze(1)
        eye = torch.eye(pos.shape[1])
        r = (d.pow(2).sum(-1) + eye).sqrt()
        e = self.species(z)
        ei = e.unsqueeze(2).expand(-1, -1, pos.shape[1], -1)
        ej = e.unsqueeze(1).expand(-1, pos.shape[1], -1, -1)
        w = self.edge_mlp(torch.cat([self.rbf(r), ei + ej, ei * ej], -1)).squeeze(-1)
        w = w * (1 - eye)
        return (w.unsqueeze(-1) * d / r.unsqueeze(-1)).sum(2)


train_set = ConformerSet(3200, SEED)
test_set = ConformerSet(300, SEED + 500, hot=0.0)
if VARIANT == "fixed":
    train_set.select(train_set.f.abs().amax((1, 2)) < 60.0)
print("training conformers:", len(train_set))
loader = DataLoader(train_set, batch_size=32, shuffle=True)

net = ForceNet()
if COMPILE:
    net = torch.compile(net, backend=COMPILE)
optim = torch.optim.Adam(net.parameters(), lr=5e-3)
steps = 380
lr_fn = lambda s: min(1.0, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * s / steps))
sched = torch.optim.lr_scheduler.LambdaLR(optim, lr_fn)

log, step = [], 0
while step < steps:
    for pos, z, f in loader:
        pred = net(pos, z)
        loss = nn.functional.mse_loss(pred, f)
        optim.zero_grad()
        loss.backward()
        optim.step()
        sched.step()
        log.append(loss.item())
        if step % 40 == 0:
            print(f"step {step:4d}  force mse {np.median(log[-40:]):.4g}  max {max(log[-40:]):.4g}")
        step += 1
        if step >= steps:
            break

net.eval()
with torch.no_grad():
    pred = net(test_set.pos, test_set.z)
rel_mae = ((pred - test_set.f).abs().mean() / test_set.f.abs().mean()).item()
num = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": num(log[0]), "loss_last": num(float(np.mean(log[-20:]))), "metric_name": "relative_force_mae",
                  "metric": num(rel_mae), "ok": bool(rel_mae < 0.3)}))
