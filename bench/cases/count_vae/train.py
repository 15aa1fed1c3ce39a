"""Latent variable model of gene counts: NB likelihood, library size as offset, Gaussian latent code."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
from sklearn.neighbors import KNeighborsClassifier
from torch.utils.data import DataLoader, TensorDataset

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
compile_backend = os.environ.get("CASE_COMPILE", "")

N_GENES, N_TYPES, N_CELLS = 180, 7, 2000


def simulate(rng):
    programs = rng.gamma(0.6, 1.0, (N_TYPES, N_GENES))
    programs /= programs.sum(1, keepdims=True)
    kind = rng.integers(0, N_TYPES, N_CELLS)
    other = rng.integers(0, N_TYPES, N_CELLS)
    mix = rng.uniform(0, 0.35, (N_CELLS, 1))
    depth = np.exp(rng.normal(5.2, 0.4, (N_CELLS, 1)))
    rate = ((1 - mix) * programs[kind] + mix * programs[other]) * depth
    return rng.poisson(rate * rng.gamma(5.0, 0.2, rate.shape)).astype(np.float32), kind


def log_nb(x, mu, theta, eps=1e-8):
    lt = torch.log(theta + mu + eps)
    return (theta * (torch.log(theta + eps) - lt) + x * (torch.log(mu + eps) - lt)
            + torch.lgamma(x + theta) - torch.lgamma(theta) - torch.lgamma(x + 1))


class CountVAE(nn.Module):
    def __init__(self, n_latent=8, n_hidden=96):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(N_GENES, n_hidden), nn.LayerNorm(n_hidden), nn.ReLU(),
                                 nn.Linear(n_hidden, n_hidden), nn.ReLU())
        self.qm, self.qv = nn.Linear(n_hidden, n_latent), nn.Linear(n_hidden, n_latent)
        self.dec = nn.Sequential(nn.Linear(n_latent, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_hidden), nn.ReLU())
        self.px_scale = nn.Linear(n_hidden, N_GENES)
        self.log_theta = nn.Parameter(torch.zeros(N_GENES))

    def encode(self, x):
        h = self.enc(torch.log1p(x))
        return self.qm(h), self.qv(h).clamp(-6, 4)

    def forward(self, x):
        m, lv = self.encode(x)
        z = m + torch.randn_like(m) * (0.5 * lv).exp()
        library = x.sum(1, keepdim=True)
        mu = torch.softmax(self.px_scale(self.dec(z)), dim=1) * library
        rec = -log_nb(x, mu, self.log_theta.exp())
        kl = 0.5 * (lv.exp() + m ** 2 - 1 - lv)
        return rec, kl


def train(vae, model, loader, n_epochs, lr=2e-3, kl_warmup=10):
    optim_kwargs = {"lr": lr, "eps": 0.01}
    if variant == "fixed":
        optim_kwargs.pop("eps")
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, vae.parameters()), **optim_kwargs)
    trace = []
    for epoch in range(n_epochs):
        weight = min(1.0, (epoch + 1) / kl_warmup)
        for (x,) in loader:
            rec, kl = model(x)
            loss = rec.mean() + weight * kl.sum(1).mean() / N_GENES
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trace.append(loss.item())
        if epoch % 3 == 2:
            print(f"epoch {epoch + 1:3d}  -ELBO/gene {np.mean(trace[-len(loader):]):.5f}  kl {kl.sum(1).mean().item():.3f}")
    return trace


def main():
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed + 7)
    counts, kind = simulate(rng)
    x = torch.from_numpy(counts)
    loader = DataLoader(TensorDataset(x[:1600]), batch_size=64, shuffle=True)
    vae = CountVAE()
    model = torch.compile(vae, backend=compile_backend) if compile_backend else vae
    trace = train(vae, model, loader, n_epochs=24)
    with torch.no_grad():
        rec, kl = model(x[1600:])
        nll = (rec.mean() + kl.sum(1).mean() / N_GENES).item()
        # the best constant profile, as a yardstick
        prof = x[:1600].sum(0) / x[:1600].sum()
        flat = -log_nb(x[1600:], prof * x[1600:].sum(1, keepdim=True), torch.tensor(1.0)).mean().item()
        z, _ = vae.encode(x)
    acc = KNeighborsClassifier(15).fit(z[:1600].numpy(), kind[:1600]).score(z[1600:].numpy(), kind[1600:])
    print(f"held-out -ELBO/gene {nll:.4f} (constant profile {flat:.4f}), cell type accuracy from the code {acc:.3f}")
    fin = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": fin(trace[0]), "loss_last": fin(np.mean(trace[-20:])),
                      "metric_name": "heldout_neg_elbo_minus_constant", "metric": fin(nll - flat), "ok": bool(nll < flat - 0.1)}))


if __name__ == "__main__":
    main()
