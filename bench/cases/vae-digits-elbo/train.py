"""Convolutional VAE on 8x8 digits; checks that reconstructions really use the code."""
import json
import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self, z_dim):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ELU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ELU(), nn.Flatten())
        self.mu = nn.Linear(128, z_dim)
        self.logvar = nn.Linear(128, z_dim)

    def forward(self, x):
        h = self.body(x)
        return self.mu(h), self.logvar(h)


class Decoder(nn.Module):
    def __init__(self, z_dim):
        super().__init__()
        self.fc = nn.Linear(z_dim, 128)
        self.up = nn.Sequential(
            nn.ELU(), nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.ELU(), nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1))

    def forward(self, z):
        return torch.sigmoid(self.up(self.fc(z).view(-1, 32, 2, 2)))


class VAE(nn.Module):
    def __init__(self, z_dim=8):
        super().__init__()
        self.encoder = Encoder(z_dim)
        self.decoder = Decoder(z_dim)

    def forward(self, x):
        mu, logvar = self.encoder(x)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        return self.decoder(z), mu, logvar


class ELBO(nn.Module):
    def __init__(self, sigma=0.25):
        super().__init__()
        self.inv2var = 0.5 / sigma ** 2

    def forward(self, recon, x, mu, logvar):
        if VARIANT == "faulty":
            rec = F.mse_loss(recon, x)
        else:
            rec = F.mse_loss(recon, x, reduction="sum") / x.shape[0]
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        return self.inv2var * rec + kl, rec, kl


def epoch_batches(X, bs):
    for chunk in torch.randperm(len(X)).split(bs):
        if len(chunk) == bs:
            yield X[chunk]


def main():
    X = torch.tensor(load_digits().images / 16.0, dtype=torch.float32).unsqueeze(1)
    X = X[torch.randperm(len(X))]
    train, test = X[:1500], X[1500:]
    vae, elbo = VAE(), ELBO()
    net = torch.compile(vae, backend=COMPILE) if COMPILE else vae
    opt = torch.optim.Adam(vae.parameters(), lr=4e-3)
    curve = []
    for epoch in range(11):
        tot = np.zeros(3)
        n = 0
        for xb in epoch_batches(train, 64):
            recon, mu, logvar = net(xb)
            loss, rec, kl = elbo(recon, xb, mu, logvar)
            opt.zero_grad()
            loss.backward()
            opt.step()
            curve.append(loss.item())
            tot += [loss.item(), rec.item(), kl.item()]
            n += 1
        print("epoch %2d  loss %.4f  rec %.4f  kl %.5f" % (epoch, *(tot / n)))

    vae.eval()
    with torch.no_grad():
        mu, _ = vae.encoder(test)
        err = (vae.decoder(mu) - test).pow(2).sum()
        base = (test - train.mean(0)).pow(2).sum()
        r2 = (1 - err / base).item()
    print(json.dumps({"loss_first": curve[0], "loss_last": float(np.mean(curve[-20:])),
                      "metric_name": "explained_variance", "metric": r2, "ok": r2 > 0.5}))


if __name__ == "__main__":
    main()
