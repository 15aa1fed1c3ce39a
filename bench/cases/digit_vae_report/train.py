# Variational autoencoder for digit images, trained with a small Trainer class.
import json
import math
import os
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn, optim
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler


@dataclass
class Config:
    latent: int = 10
    hidden: int = 160
    batch: int = 50
    epochs: int = 14
    lr: float = 2e-3
    beta: float = 0.3
    variant: str = field(default_factory=lambda: os.environ.get("CASE_VARIANT", "faulty"))
    seed: int = field(default_factory=lambda: int(os.environ.get("CASE_SEED", "0")))
    backend: str = field(default_factory=lambda: os.environ.get("CASE_COMPILE", ""))


class DigitVAE(nn.Module):
    def __init__(self, cfg, n_pix=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_pix, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, cfg.hidden), nn.SiLU())
        self.to_stats = nn.Linear(cfg.hidden, 2 * cfg.latent)
        self.decoder = nn.Sequential(nn.Linear(cfg.latent, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, cfg.hidden),
                                     nn.SiLU(), nn.Linear(cfg.hidden, n_pix),
                                     nn.Identity() if cfg.variant == "fixed" else nn.Sigmoid())

    def forward(self, x):
        mu, logvar = self.to_stats(self.encoder(x)).chunk(2, dim=-1)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu) if self.training else mu
        return self.decoder(z), mu, logvar


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.rng = np.random.RandomState(cfg.seed)
        pixels = load_digits().data.astype(np.float64)
        self.rng.shuffle(pixels)
        scaler = StandardScaler()
        flat = scaler.fit_transform(pixels.reshape(-1, 1)).reshape(pixels.shape)
        data = torch.from_numpy(flat.astype(np.float32))
        self.train_x, self.test_x = data[:1500], data[1500:]
        self.vae = DigitVAE(cfg)
        self.model = torch.compile(self.vae, backend=cfg.backend) if cfg.backend else self.vae
        self.opt = optim.Adam(self.vae.parameters(), lr=cfg.lr)
        self.sched = optim.lr_scheduler.OneCycleLR(self.opt, cfg.lr, total_steps=cfg.epochs * (1500 // cfg.batch))
        self.history = []

    def elbo(self, x):
        recon, mu, logvar = self.model(x)
        rec = ((recon - x) ** 2).sum(dim=1).mean()
        kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(dim=1).mean()
        return rec + self.cfg.beta * kl, rec, kl

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.vae.train()
            order = self.rng.permutation(len(self.train_x))
            for k in range(0, len(order), self.cfg.batch):
                loss, rec, kl = self.elbo(self.train_x[order[k:k + self.cfg.batch]])
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                self.sched.step()
                self.history.append(loss.item())
            print(f"[{epoch:02d}] loss {np.mean(self.history[-30:]):.3f} rec {rec.item():.3f} kl {kl.item():.3f} "
                  f"held-out mse {self.score():.4f}")
        return self

    @torch.no_grad()
    def score(self):
        self.vae.eval()
        recon, _, _ = self.model(self.test_x)
        return (recon - self.test_x).pow(2).mean().item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    t = Trainer(Config()).fit()
    mse = t.score()
    num = lambda v: round(float(v), 6) if math.isfinite(v) else None
    print(json.dumps({"loss_first": num(t.history[0]), "loss_last": num(np.mean(t.history[-10:])),
                      "metric_name": "heldout_mse", "metric": num(mse), "ok": bool(mse < 0.38)}))
