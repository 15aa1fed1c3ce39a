import json
import math
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from sklearn.datasets import load_digits

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(seed)
np.random.seed(seed)
torch.set_num_threads(1)

images = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)
images = images[torch.randperm(len(images))]
train, test = images[:1500], images[1500:]


class DigitVAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.to_mu = nn.Linear(128, latent)
        self.to_logvar = nn.Linear(128, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h)
        std = torch.exp(0.5 * logvar)
        if variant == "fixed":
            z = mu + std * torch.randn_like(std)
        else:
            z = torch.normal(mu, std)
        return self.decoder(z), mu, logvar


def elbo(logits, x, mu, logvar):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec, kl


vae = DigitVAE()
model = torch.compile(vae, backend=backend) if backend else vae
optim = torch.optim.Adam(vae.parameters(), lr=3e-3)
hist = []
it = 0
for epoch in range(16):
    order = torch.randperm(len(train))
    for chunk in order.split(64):
        x = train[chunk]
        logits, mu, logvar = model(x)
        rec, kl = elbo(logits, x, mu, logvar)
        loss = rec + kl
        optim.zero_grad()
        loss.backward()
        optim.step()
        hist.append(loss.item())
        it += 1
    if epoch % 3 == 0:
        print(f"epoch {epoch:2d} it {it} rec {rec.item():.3f} kl {kl.item():.3f}")

vae.eval()
with torch.no_grad():
    mu = vae.to_mu(vae.encoder(test))
    mse = F.mse_loss(torch.sigmoid(vae.decoder(mu)), test).item()
    base = F.mse_loss(train.mean(0).expand_as(test), test).item()
ratio = mse / base
f = lambda v: round(v, 5) if math.isfinite(v) else None
print("reconstruction error relative to the mean image", ratio)
print(json.dumps({"loss_first": f(hist[0]), "loss_last": f(float(np.mean(hist[-20:]))),
                  "metric_name": "relative_reconstruction_error", "metric": f(ratio), "ok": bool(ratio < 0.75)}))
