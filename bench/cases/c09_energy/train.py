"""Potential energy of small molecules from atom types and pair distances (kJ/mol)."""
import json
import os

import numpy as np
import torch
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)
np.random.seed(SEED)
N_ATOMS, N_RBF = 8, 12
SELF_ENERGY = np.array([-1570.0, -99900.0, -143600.0, -197000.0]) / 20
EPS = np.array([[1.0, 1.4, 1.8, 2.1], [1.4, 2.0, 2.5, 2.9], [1.8, 2.5, 3.0, 3.3], [2.1, 2.9, 3.3, 4.0]]) * 20


def molecules(n):
    base = np.array([0, 0, 0, 1, 1, 1, 2, 3])
    z = np.stack([np.random.permutation(base) for _ in range(n)])
    grid = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1]), -1).reshape(-1, 3) * 1.5
    pos = grid + 0.18 * np.random.randn(n, N_ATOMS, 3)
    d = np.linalg.norm(pos[:, :, None] - pos[:, None], axis=-1) + np.eye(N_ATOMS) * 1e3
    pair = EPS[z[:, :, None], z[:, None]] * (np.exp(-2 * (d - 1.5)) - 2 * np.exp(-(d - 1.5)))
    e = SELF_ENERGY[z].sum(1) + 0.5 * pair.sum((1, 2))
    return torch.from_numpy(z), torch.from_numpy(d).float(), torch.from_numpy(e).float()


class Interaction(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(N_RBF, h), nn.SiLU(), nn.Linear(h, h))
        self.inp = nn.Linear(h, h, bias=False)
        self.out = nn.Sequential(nn.Linear(h, h), nn.SiLU(), nn.Linear(h, h))

    def forward(self, x, rbf, mask):
        w = self.filter(rbf) * mask
        return x + self.out((w * self.inp(x)[:, None]).sum(2))


class EnergyModel(nn.Module):
    def __init__(self, h=32, mean=0.0, std=1.0):
        super().__init__()
        self.atom = nn.Embedding(4, h)
        self.blocks = nn.ModuleList([Interaction(h), Interaction(h)])
        self.readout = nn.Sequential(nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 1))
        self.register_buffer("centers", torch.linspace(0.8, 3.5, N_RBF))
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    def forward(self, z, d):
        rbf = torch.exp(-8 * (d[..., None] - self.centers) ** 2)
        mask = (d < 100).float()[..., None]
        x = self.atom(z)
        for blk in self.blocks:
            x = blk(x, rbf, mask)
        return self.readout(x).sum((1, 2))

    def energy(self, z, d):
        return self(z, d) * self.std + self.mean


z, d, e = molecules(1000)
vz, vd, ve = molecules(200)
stats = {"mean": float(e.mean()), "std": float(e.std())} if VARIANT == "fixed" else {}
model = EnergyModel(**stats)
net = torch.compile(model, backend=COMPILE) if COMPILE else model
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
print(f"energies: mean {e.mean():.1f} std {e.std():.2f}")
hist = []
for epoch in range(10):
    for idx in torch.randperm(len(e)).split(40):
        loss = nn.functional.mse_loss(net(z[idx], d[idx]), (e[idx] - model.mean) / model.std)
        opt.zero_grad()
        loss.backward()
        opt.step()
        hist.append(loss.item())
    if epoch % 3 == 0 or epoch == 9:
        with torch.no_grad():
            mae = (model.energy(vz, vd) - ve).abs().mean().item()
        print(f"epoch {epoch} loss {np.mean(hist[-25:]):.5g} val MAE {mae:.2f} kJ/mol")
rel = mae / (ve - ve.mean()).abs().mean().item()
print(json.dumps({"loss_first": hist[0], "loss_last": hist[-1], "metric_name": "mae_over_mean_predictor", "metric": rel, "ok": rel < 0.4}))
