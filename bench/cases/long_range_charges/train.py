"""Energy model for small clusters: short-range network plus a Coulomb term with one charge per element."""
import json
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
N_ATOMS, N_ELEM, CUTOFF = 10, 3, 2.2


class ElectrostaticBlock(nn.Module):
    def __init__(self, n_elem):
        super().__init__()
        self.charges = nn.Parameter(0.1 * torch.randn(n_elem))

    def forward(self, dist, species):
        q = self.charges[species]
        pair = q.unsqueeze(2) * q.unsqueeze(1) / dist
        return torch.triu(pair, diagonal=1).sum((1, 2))


class PotentialModel(nn.Module):
    def __init__(self, n_elem=N_ELEM, n_radial=8, width=32):
        super().__init__()
        self.register_buffer("centers", torch.linspace(0.8, CUTOFF, n_radial))
        self.embedding = nn.Embedding(n_elem, 8)
        self.interaction = nn.Linear(n_radial * n_elem, width)
        self.readout = nn.Sequential(nn.SiLU(), nn.Linear(width + 8, width), nn.SiLU(), nn.Linear(width, 1))
        self.electrostatics = ElectrostaticBlock(n_elem)

    def forward(self, pos, species):
        eye = torch.eye(pos.shape[1])
        diff = pos.unsqueeze(2) - pos.unsqueeze(1)
        dist = torch.sqrt((diff ** 2).sum(-1) + eye)
        fc = 0.5 * (torch.cos(np.pi * dist / CUTOFF) + 1) * (dist < CUTOFF) * (1 - eye)
        radial = torch.exp(-8 * (dist.unsqueeze(-1) - self.centers) ** 2) * fc.unsqueeze(-1)
        onehot = nn.functional.one_hot(species, N_ELEM).float()
        feats = torch.einsum("bijr,bje->bire", radial, onehot).flatten(2)
        h = torch.cat([self.interaction(feats), self.embedding(species)], dim=-1)
        short = self.readout(h).squeeze(-1).sum(1)
        return short + self.electrostatics(dist, species)


def make_clusters(n, gen):
    """Random clusters with a soft minimum distance; reference energy = Morse pairs + Coulomb."""
    pos = torch.empty(n, N_ATOMS, 3)
    for a in range(N_ATOMS):
        best = torch.rand(n, 8, 3, generator=gen) * 4.5
        if a:
            d = torch.cdist(best, pos[:, :a]).min(-1).values
            best = best[torch.arange(n), d.clamp(max=1.3).argmax(1)]
        else:
            best = best[:, 0]
        pos[:, a] = best
    species = torch.randint(0, N_ELEM, (n, N_ATOMS), generator=gen)
    d = torch.cdist(pos, pos) + 10 * torch.eye(N_ATOMS)
    q = torch.tensor([1.1, -0.9, 0.4])[species]
    morse = 0.15 * ((1 - torch.exp(-1.5 * (d - 1.5))) ** 2 - 1) * (d < CUTOFF)
    coul = q.unsqueeze(2) * q.unsqueeze(1) / d * (1 - torch.eye(N_ATOMS))
    return pos, species, 0.5 * (morse + coul).sum((1, 2))


def build_optimizer(model, lr):
    no_decay, decay = [], []
    for name, p in model.embedding.named_parameters():
        no_decay.append(p)
    for block in (model.interaction, model.readout):
        for name, p in block.named_parameters():
            (no_decay if name.endswith("bias") else decay).append(p)
    groups = [
        {"params": decay, "weight_decay": 1e-5},
        {"params": no_decay, "weight_decay": 0.0},
    ]
    if VARIANT == "fixed":
        groups.append({"params": list(model.electrostatics.parameters()), "weight_decay": 0.0})
    return torch.optim.AdamW(groups, lr=lr, amsgrad=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    gen = torch.Generator().manual_seed(SEED + 100)
    pos, spec, energy = make_clusters(2400, gen)
    n_train = 2000
    energy = energy - energy[:n_train].mean()

    net = PotentialModel()
    opt = build_optimizer(net, lr=1e-2)
    model = torch.compile(net, backend=COMPILE) if COMPILE else net
    losses = []
    for step in range(360):
        idx = torch.randint(0, n_train, (48,))
        loss = nn.functional.mse_loss(model(pos[idx], spec[idx]), energy[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        if (step + 1) % 60 == 0:
            print(f"step {step + 1}: mse {np.mean(losses[-30:]):.4f}")
    with torch.no_grad():
        err = model(pos[n_train:], spec[n_train:]) - energy[n_train:]
    r2 = 1 - (err.var() / energy[n_train:].var()).item()
    print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-20:])),
                      "metric_name": "test_r2", "metric": r2, "ok": r2 > 0.9}))


if __name__ == "__main__":
    main()
