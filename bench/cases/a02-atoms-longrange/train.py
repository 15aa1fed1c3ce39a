"""Energy model for small charged clusters: short range message passing + a learned-charge Coulomb term."""
import json
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

N_ATOMS, N_SPECIES, R_CUT = 8, 4, 2.0


def sample_clusters(n, gen):
    """positions on a jittered grid so that no two atoms sit on top of each other"""
    cells = torch.stack(torch.meshgrid(*[torch.arange(3.0)] * 3, indexing="ij"), -1).view(-1, 3)
    pick = torch.stack([torch.randperm(27, generator=gen)[:N_ATOMS] for _ in range(n)])
    pos = 1.5 * cells[pick] + 0.25 * torch.randn(n, N_ATOMS, 3, generator=gen)
    z = torch.randint(0, N_SPECIES, (n, N_ATOMS), generator=gen)
    q = torch.tensor([1.0, -1.0, 0.5, -0.6])[z]
    w = torch.tensor([0.3, 0.6, 0.9, 1.2])[z]
    d = (pos[:, :, None] - pos[:, None]).pow(2).sum(-1).add(torch.eye(N_ATOMS)).sqrt()
    off = 1 - torch.eye(N_ATOMS)
    coul = 0.5 * (q[:, :, None] * q[:, None] / d * off).sum((1, 2))
    rep = 0.5 * (torch.exp(-2.0 * (d - 1.0)) * w[:, :, None] * w[:, None] * off).sum((1, 2))
    return z, pos, 2.0 * coul + rep + w.sum(1)


class RadialBasis(nn.Module):
    def __init__(self, n=12):
        super().__init__()
        self.register_buffer("centers", torch.linspace(0.5, R_CUT, n))

    def forward(self, d):
        env = 0.5 * (torch.cos(torch.pi * d / R_CUT) + 1) * (d < R_CUT)
        return torch.exp(-12 * (d[..., None] - self.centers) ** 2) * env[..., None]


class Interaction(nn.Module):
    def __init__(self, c, n_rbf=12):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(n_rbf, c), nn.SiLU(), nn.Linear(c, c))
        self.mix = nn.Linear(c, c)
        self.update = nn.Sequential(nn.Linear(c, c), nn.SiLU(), nn.Linear(c, c))

    def forward(self, h, rbf, off):
        m = (self.filter(rbf) * off[..., None] * self.mix(h)[:, None]).sum(2)
        return h + self.update(m)


class ClusterPotential(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.radial_embedding = RadialBasis()
        self.node_embedding = nn.Embedding(N_SPECIES, c)
        self.interactions = nn.ModuleList([Interaction(c) for _ in range(2)])
        self.readouts = nn.ModuleList([nn.Linear(c, 1), nn.Sequential(nn.Linear(c, 16), nn.SiLU(), nn.Linear(16, 1))])
        self.lr_source_maps = nn.Sequential(nn.Linear(c, 16), nn.SiLU(), nn.Linear(16, 1))
        self.coulomb_scale = nn.Parameter(torch.ones(1))

    def forward(self, z, pos):
        off = 1 - torch.eye(z.shape[1])
        d = ((pos[:, :, None] - pos[:, None]).pow(2).sum(-1) + torch.eye(z.shape[1])).sqrt()
        rbf = self.radial_embedding(d)
        h = h0 = self.node_embedding(z)
        energy = 0.0
        for block, out in zip(self.interactions, self.readouts):
            h = block(h, rbf, off)
            energy = energy + out(h).sum((1, 2))
        q = self.lr_source_maps(h0).squeeze(-1)
        energy = energy + self.coulomb_scale * 0.5 * (q[:, :, None] * q[:, None] / d * off).sum((1, 2))
        return energy


def param_groups(model, weight_decay):
    decay, no_decay = [], []
    for name, p in model.interactions.named_parameters():
        (decay if name.endswith("weight") else no_decay).append(p)
    groups = [
        {"name": "embedding", "params": list(model.node_embedding.parameters()), "weight_decay": 0.0},
        {"name": "interactions_decay", "params": decay, "weight_decay": weight_decay},
        {"name": "interactions_no_decay", "params": no_decay, "weight_decay": 0.0},
        {"name": "readouts", "params": list(model.readouts.parameters()), "weight_decay": 0.0},
    ]
    if VARIANT == "fixed":
        groups.append({"name": "long_range", "weight_decay": 0.0,
                       "params": list(model.lr_source_maps.parameters()) + [model.coulomb_scale]})
    return groups


gen = torch.Generator().manual_seed(SEED)
z, pos, e = sample_clusters(950, gen)
mean, std = e[:800].mean(), e[:800].std()
e = (e - mean) / std
train = DataLoader(TensorDataset(z[:800], pos[:800], e[:800]), batch_size=50, shuffle=True, generator=gen)
zv, pv, ev = z[800:], pos[800:], e[800:]

potential = ClusterPotential()
net = torch.compile(potential, backend=COMPILE) if COMPILE else potential
optimizer = torch.optim.AdamW(param_groups(potential, 1e-4), lr=4e-3, amsgrad=True)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=14, eta_min=1e-4)
loss_fn = nn.HuberLoss(delta=1.0)

history = []
for epoch in range(14):
    for zb, pb, eb in train:
        optimizer.zero_grad()
        loss = loss_fn(net(zb, pb), eb)
        loss.backward()
        nn.utils.clip_grad_norm_(potential.parameters(), 10.0)
        optimizer.step()
        history.append(loss.item())
    sched.step()
    if epoch % 4 == 1:
        with torch.no_grad():
            mae = (potential(zv, pv) - ev).abs().mean().item()
        print(f"epoch {epoch + 1:3d} loss {np.mean(history[-20:]):.4f} val mae {mae:.3f} sigma")

with torch.no_grad():
    mae = (potential(zv, pv) - ev).abs().mean().item()
print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])),
                  "metric_name": "val_mae_over_sigma", "metric": mae, "ok": mae < 0.1}))
