"""Conv VAE on the 8x8 digits, ELBO in nats per image, beta warm-up with free bits."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

CFG = dict(z=12, batch=64, steps=240, lr=2e-3, beta_max=1.0, warm=130, free_nats=0.05, obs_sigma=0.12)


class Encoder(nn.Module):
    def __init__(self, zdim):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(),
            nn.Conv2d(16, 48, 4, stride=2, padding=1), nn.SiLU(),
            nn.Flatten(),
            nn.Linear(48 * 16, 128), nn.SiLU(),
        )
        self.mu = nn.Linear(128, zdim)
        self.logvar = nn.Linear(128, zdim)
        # start from a narrow posterior so the decoder sees something useful early
        nn.init.zeros_(self.logvar.weight)
        nn.init.constant_(self.logvar.bias, -4.0)

    def forward(self, x):
        h = self.body(x)
        return self.mu(h), self.logvar(h).clamp(-9, 4)


class Decoder(nn.Module):
    def __init__(self, zdim):
        super().__init__()
        self.inp = nn.Linear(zdim, 48 * 16)
        self.up = nn.ConvTranspose2d(48, 16, 4, stride=2, padding=1)
        self.out = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, z):
        h = F.silu(self.inp(z)).view(-1, 48, 4, 4)
        return torch.sigmoid(self.out(F.silu(self.up(h))))


class VAE(nn.Module):
    def __init__(self, zdim):
        super().__init__()
        self.enc = Encoder(zdim)
        self.dec = Decoder(zdim)

    def forward(self, x, eps):
        mu, lv = self.enc(x)
        z = mu + eps * torch.exp(0.5 * lv)
        return self.dec(z), mu, lv


def elbo_terms(x, xr, mu, lv, sigma):
    # Gaussian likelihood with known sigma, constants dropped, summed over pixels and over the batch
    rec = ((x - xr) ** 2).sum() / (2 * sigma ** 2)
    kl_dim = 0.5 * (mu ** 2 + lv.exp() - 1 - lv)
    return rec, kl_dim


def beta_at(step):
    return CFG["beta_max"] * 0.5 * (1 - math.cos(math.pi * min(1.0, step / CFG["warm"])))


images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16.0
perm = torch.randperm(len(images))
test, train = images[perm[:300]], images[perm[300:]]

vae = VAE(CFG["z"])
model = torch.compile(vae, backend=BACKEND) if BACKEND else vae
opt = torch.optim.Adam([
    {"params": vae.enc.parameters(), "lr": CFG["lr"]},
    {"params": vae.dec.parameters(), "lr": CFG["lr"]},
])

step, first, last = 0, None, None
while step < CFG["steps"]:
    order = torch.randperm(len(train))
    for i in range(0, len(order) - CFG["batch"] + 1, CFG["batch"]):
        x = train[order[i:i + CFG["batch"]]]
        xr, mu, lv = model(x, torch.randn(len(x), CFG["z"]))
        rec, kl_dim = elbo_terms(x, xr, mu, lv, CFG["obs_sigma"])
        # free bits: per-dim batch average below the floor is not penalised
        kl = torch.clamp(kl_dim.mean(0), min=CFG["free_nats"]).sum() * len(x)
        loss = rec + beta_at(step) * kl
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        last = loss.item()
        first = last if first is None else first
        if step % 40 == 0:
            print(f"it {step:4d} beta {beta_at(step):.2f} loss {last:10.1f} rec {rec.item():10.1f} kl {kl.item():10.1f}")
        step += 1
        if step >= CFG["steps"]:
            break

vae.eval()
with torch.no_grad():
    mu, lv = vae.enc(test)
    mse = ((vae.dec(mu) - test) ** 2).mean()
    base = ((train.mean(0, keepdim=True) - test) ** 2).mean()
    kl_test = elbo_terms(test, test, mu, lv, 1.0)[1].mean(0)
    # aggregate posterior should sit near the prior so that sampling works
    z = mu + torch.randn_like(mu) * torch.exp(0.5 * lv)
    agg = (z.std(0) - 1).abs().max().item()
    explained = 1 - (mse / base).item()
print("kl per dim", [round(v, 2) for v in kl_test.tolist()], "agg std dev from 1: %.2f" % agg)
ok = math.isfinite(last) and explained > 0.70 and agg < 0.5
print(json.dumps({"loss_first": first, "loss_last": last, "metric_name": "explained_variance_test",
                  "metric": explained, "ok": bool(ok)}))
