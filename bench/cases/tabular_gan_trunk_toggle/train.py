# Tabular GAN: synthesise rows that look like the (standardised) wine table.
import os, json
import numpy as np
import torch, torch.nn as nn
from sklearn.datasets import load_wine

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED); np.random.seed(SEED)

raw = load_wine().data
table = torch.tensor((raw - raw.mean(0)) / raw.std(0), dtype=torch.float32)[:, :6]
DIM, NOISE = table.shape[1], 8


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(NOISE, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2))
        self.out = nn.Linear(48, DIM)

    def forward(self, z):
        return self.out(self.body(z)) + 1.5


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(DIM, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2))
        self.head = nn.Linear(64, 1)

    def forward(self, rows):
        return self.head(self.trunk(rows)).squeeze(1)


def set_requires_grad(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)


G, D = Generator(), Discriminator()
netG = torch.compile(G, backend=COMPILE) if COMPILE else G
netD = torch.compile(D, backend=COMPILE) if COMPILE else D
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.9))
mse = nn.MSELoss()
BATCH = 64
one, zero = torch.ones(BATCH), torch.zeros(BATCH)


def distance(n=2000):
    """Energy distance between generated and real rows."""
    with torch.no_grad():
        fake = G(torch.randn(n, NOISE))
        xy = torch.cdist(fake, table).mean()
        xx = torch.cdist(fake, fake).mean()
        yy = torch.cdist(table, table).mean()
    return (2 * xy - xx - yy).item()


log = []
for it in range(200):
    real = table[torch.randint(0, len(table), (BATCH,))]
    fake = netG(torch.randn(BATCH, NOISE))

    # discriminator
    set_requires_grad(D.head if VARIANT == "faulty" else D, True)
    opt_d.zero_grad()
    loss_d = 0.5 * (mse(netD(real), one) + mse(netD(fake.detach()), zero))
    loss_d.backward()
    opt_d.step()

    # generator; no gradients needed for the discriminator's own weights here
    set_requires_grad(D, False)
    opt_g.zero_grad()
    loss_g = mse(netD(fake), one)
    loss_g.backward()
    opt_g.step()

    log.append((loss_d.item(), loss_g.item()))
    if it % 25 == 0:
        print(f"it {it:3d}  D {log[-1][0]:.3f}  G {log[-1][1]:.3f}  energy {distance():.3f}")

e = distance()
print(json.dumps({"loss_first": log[0][1], "loss_last": log[-1][1], "metric_name": "energy_distance", "metric": e,
                  "ok": bool(e < 0.35)}))
