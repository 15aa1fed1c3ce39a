"""Non-saturating GAN on a curved two-cluster distribution, two optimizers, two discriminator steps per generator step."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)

from sklearn.datasets import make_moons

real = torch.tensor(make_moons(3000, noise=0.08, random_state=SEED)[0], dtype=torch.float32)
real = (real - real.mean(0)) / real.std(0)


def mlp(i, o, w, act):
    return nn.Sequential(nn.Linear(i, w), act(), nn.Linear(w, w), act(), nn.Linear(w, o))


gen = mlp(6, 2, 60, nn.ReLU)
dis = mlp(2, 1, 60, lambda: nn.LeakyReLU(0.2))
g = torch.compile(gen, backend=BACKEND) if BACKEND else gen
d = torch.compile(dis, backend=BACKEND) if BACKEND else dis
opt_g = torch.optim.Adam(gen.parameters(), lr=8e-4, betas=(0.5, 0.99))
opt_d = torch.optim.Adam(dis.parameters(), lr=8e-4, betas=(0.5, 0.99))
g_log, d_log = [], []
for it in range(500):
    for _ in range(2):
        x = real[torch.randint(0, len(real), (90,))]
        fake = g(torch.randn(90, 6)).detach()
        loss_d = F.softplus(-d(x)).mean() + F.softplus(d(fake)).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
    loss_g = F.softplus(-d(g(torch.randn(90, 6)))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    g_log.append(loss_g.item())
    d_log.append(loss_d.item())
    if it % 100 == 0:
        print(f"{it} G {loss_g.item():.3f} D {loss_d.item():.3f}")
with torch.no_grad():
    f = gen(torch.randn(1000, 6))
    r = real[:1000]
    dist = (2 * torch.cdist(f, r).mean() - torch.cdist(f, f).mean() - torch.cdist(r, r).mean()).item()
print(json.dumps({"loss_first": g_log[0], "loss_last": g_log[-1], "metric_name": "energy_distance", "metric": dist, "ok": dist < 0.12}))
