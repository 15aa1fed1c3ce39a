"""Small WGAN-style generator for 2-d detector hits (two arcs)."""
import json
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")


class Options:
    lr_g, lr_d, b1, b2 = 1e-3, 2e-3, 0.5, 0.9
    z_dim, batch, iters = 4, 128, 350
    lambda_pix, lambda_gan = 0.05, 1.0


def hits(n):
    a = torch.rand(n) * np.pi
    side = (torch.rand(n) < 0.5).float()
    x = torch.stack([torch.cos(a), torch.sin(a)], 1) * (1 - 2 * side)[:, None]
    return x + torch.tensor([1.5, 1.0]) + 0.05 * torch.randn(n, 2)


def mlp(i, o, width, act):
    return nn.Sequential(nn.Linear(i, width), act(), nn.Linear(width, width), act(), nn.Linear(width, o))


class GatedGenerator(nn.Module):
    def __init__(self, opt):
        super().__init__()
        self.feature = mlp(opt.z_dim, 32, 48, nn.ELU)
        self.gate = nn.Linear(32, 32)
        self.to_xy = nn.Linear(32, 2)

    def forward(self, z):
        h = self.feature(z)
        return self.to_xy(h * torch.sigmoid(self.gate(h)))


class PatchDiscriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(2, 1, 64, lambda: nn.LeakyReLU(0.2))

    def forward(self, x):
        return self.net(x)


def sliced_distance(a, b, n_proj=64):
    g = torch.Generator().manual_seed(0)
    d = torch.randn(2, n_proj, generator=g)
    d = d / d.norm(dim=0)
    return ((a @ d).sort(0)[0] - (b @ d).sort(0)[0]).abs().mean().item()


def Trainer(opt):
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    generator, discriminator = GatedGenerator(opt), PatchDiscriminator()
    G = torch.compile(generator, backend=COMPILE) if COMPILE else generator
    D = torch.compile(discriminator, backend=COMPILE) if COMPILE else discriminator
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=opt.lr_g, betas=(opt.b1, opt.b2))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=opt.lr_d, betas=(opt.b1, opt.b2))
    bce = nn.BCEWithLogitsLoss()
    real_label, fake_label = torch.ones(opt.batch, 1), torch.zeros(opt.batch, 1)
    average = torch.tensor([1.5, 1.0])
    log = []
    for it in range(opt.iters):
        real = hits(opt.batch)
        z = torch.randn(opt.batch, opt.z_dim)

        # discriminator
        optimizer_d.zero_grad()
        fake = G(z)
        loss_d = 0.5 * (bce(D(real), real_label) + bce(D(fake.detach()), fake_label))
        loss_d.backward()
        if VARIANT == "fixed":
            optimizer_d.step()

        # generator
        optimizer_g.zero_grad()
        gan = bce(D(fake), real_label)
        pix = (fake.mean(0) - average).abs().mean()  # beam spot constraint
        loss_g = opt.lambda_gan * gan + opt.lambda_pix * pix
        loss_g.backward()
        optimizer_g.step()
        log.append((loss_d.item(), loss_g.item()))
        if it % 50 == 0:
            print(f"[{it}/{opt.iters}] D {loss_d.item():.4f} G {loss_g.item():.4f}")
    with torch.no_grad():
        sample = generator(torch.randn(1000, opt.z_dim))
        return log, sliced_distance(sample, hits(1000)), sliced_distance(hits(1000), hits(1000))


log, dist, floor = Trainer(Options)
print(f"sliced distance {dist:.4f} (two real draws: {floor:.4f})")
print(json.dumps({"loss_first": log[0][1], "loss_last": float(np.mean([g for _, g in log[-20:]])),
                  "metric_name": "sliced_wasserstein", "metric": dist, "ok": dist < 0.25}))
