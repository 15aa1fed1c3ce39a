"""Adversarial restoration of shaded digit images: encoder + generator against a patch critic."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")


class ShadedPairs(Dataset):
    """(shaded, clean) pairs; the shade is a random ramp that darkens one side of the picture."""

    def __init__(self, images, rng):
        ramp = np.linspace(-1, 1, 8)
        angle = rng.uniform(0, 2 * np.pi, len(images))
        plane = np.cos(angle)[:, None, None] * ramp[None, :, None] + np.sin(angle)[:, None, None] * ramp[None, None, :]
        mask = 1 / (1 + np.exp(-4 * plane)) * 0.8 + 0.2
        shaded = images * mask + rng.normal(0, 0.05, images.shape)
        self.clean = torch.tensor(images * 2 - 1, dtype=torch.float32).unsqueeze(1)
        self.shaded = torch.tensor(shaded * 2 - 1, dtype=torch.float32).unsqueeze(1)

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        return self.shaded[i], self.clean[i]


class Encoder(nn.Module):
    def __init__(self, z=24):
        super().__init__()
        self.c1 = nn.Conv2d(1, 24, 3, padding=1)
        self.c2 = nn.Conv2d(24, 32, 3, stride=2, padding=1)
        self.fc = nn.Linear(32 * 16, z)

    def forward(self, x):
        x = F.leaky_relu(self.c1(x), 0.2)
        x = F.leaky_relu(self.c2(x), 0.2)
        return self.fc(x.flatten(1))


class Generator(nn.Module):
    def __init__(self, z=24):
        super().__init__()
        self.fc = nn.Linear(z, 32 * 4)
        self.up1 = nn.ConvTranspose2d(32, 24, 4, 2, 1)
        self.up2 = nn.ConvTranspose2d(24, 16, 4, 2, 1)
        self.to_img = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, z):
        h = F.leaky_relu(self.fc(z), 0.2).view(-1, 32, 2, 2)
        h = F.leaky_relu(self.up1(h), 0.2)
        h = F.leaky_relu(self.up2(h), 0.2)
        return torch.tanh(self.to_img(h))


class Restorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.generator = Generator()

    def forward(self, x):
        return self.generator(self.encoder(x))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 24, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(24, 32, 3, 1, 1),
                                 nn.LeakyReLU(0.2), nn.Conv2d(32, 1, 3, 1, 1))

    def forward(self, x):
        return self.net(x)


def requires_grad(module, flag=True):
    for p in module.parameters():
        p.requires_grad_(flag)


def restoration_error(net, loader):
    net.eval()
    se = n = 0.0
    with torch.no_grad():
        for shaded, clean in loader:
            se += F.mse_loss(net(shaded), clean, reduction="sum").item()
            n += clean.numel()
    net.train()
    return se / n


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    images = load_digits().images[rng.permutation(1797)] / 16.0
    train = DataLoader(ShadedPairs(images[:1536], rng), batch_size=32, shuffle=True, drop_last=True)
    test = DataLoader(ShadedPairs(images[1536:], rng), batch_size=64)

    net, critic = Restorer(), Critic()
    encoder, generator = net.encoder, net.generator
    g_optim = torch.optim.Adam(list(encoder.parameters()) + list(generator.parameters()), lr=2e-3, betas=(0.5, 0.99))
    d_optim = torch.optim.Adam(critic.parameters(), lr=5e-4, betas=(0.5, 0.99))
    model = torch.compile(net, backend=COMPILE) if COMPILE else net

    curve = []
    for epoch in range(10):
        for shaded, clean in train:
            requires_grad(encoder, False)
            requires_grad(generator, False)
            requires_grad(critic, True)
            fake = model(shaded)
            d_loss = F.softplus(critic(fake)).mean() + F.softplus(-critic(clean)).mean()
            critic.zero_grad()
            d_loss.backward()
            d_optim.step()

            requires_grad(encoder, True)
            requires_grad(generator, VARIANT == "fixed")
            requires_grad(critic, False)
            fake = model(shaded)
            adv = F.softplus(-critic(fake)).mean()
            rec = F.l1_loss(fake, clean)
            g_loss = 10 * rec + 0.05 * adv
            net.zero_grad()
            g_loss.backward()
            g_optim.step()
            curve.append(rec.item())
        print(f"epoch {epoch}: D {d_loss.item():.4f} adv {adv.item():.4f} L1 {np.mean(curve[-48:]):.4f} "
              f"test mse {restoration_error(model, test):.4f}")

    err = restoration_error(model, test)
    fin = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": fin(curve[0]), "loss_last": fin(np.mean(curve[-20:])), "metric_name": "test_mse",
                      "metric": fin(err), "ok": bool(err < 0.17)}))


if __name__ == "__main__":
    main()
