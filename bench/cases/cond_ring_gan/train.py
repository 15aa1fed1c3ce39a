"""Class-conditional GAN on points around a ring; one optimizer per player, step function chosen by index."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

seed = int(os.environ.get("CASE_SEED", "0"))
variant = os.environ.get("CASE_VARIANT", "faulty")
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)

K, Z, BATCH, STEPS = 8, 8, 128, 1500
ANGLE = torch.arange(K) * 2 * math.pi / K
CENTRES = torch.stack([ANGLE.cos(), ANGLE.sin()], 1) * 2.0


class Generator(nn.Module):
    def __init__(self, h=64):
        super().__init__()
        self.label = nn.Embedding(K, 16)
        self.body = nn.Sequential(nn.Linear(Z + 16, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, h), nn.BatchNorm1d(h),
                                  nn.ReLU(), nn.Linear(h, 2))

    def forward(self, z, y):
        return self.body(torch.cat([z, self.label(y)], 1))


class Discriminator(nn.Module):
    def __init__(self, h=64):
        super().__init__()
        self.label = nn.Embedding(K, 16)
        self.body = nn.Sequential(nn.Linear(2 + 16, h), nn.LeakyReLU(0.2), nn.Linear(h, h), nn.LeakyReLU(0.2), nn.Linear(h, 1))

    def forward(self, x, y):
        return self.body(torch.cat([x, self.label(y)], 1)).squeeze(1)


class CondGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = Generator()
        self.d = Discriminator()
        self.sigma = 0.15

    def instance_noise(self, x):
        x = x.clone() if variant == "fixed" else x.detach().clone()
        x += self.sigma * torch.randn_like(x)
        return x

    def training_step(self, real, y, optimizer_idx):
        z = torch.randn(len(y), Z)
        fake = self.g(z, y)
        on_fake = self.d(self.instance_noise(fake), y)
        if optimizer_idx == 0:
            return F.binary_cross_entropy_with_logits(on_fake, torch.ones_like(on_fake))
        on_real = self.d(self.instance_noise(real), y)
        return 0.5 * (F.binary_cross_entropy_with_logits(on_real, torch.full_like(on_real, 0.9))
                      + F.binary_cross_entropy_with_logits(on_fake, torch.zeros_like(on_fake)))

    def configure_optimizers(self):
        return (torch.optim.Adam(self.g.parameters(), lr=1e-3, betas=(0.5, 0.9)),
                torch.optim.Adam(self.d.parameters(), lr=1e-3, betas=(0.5, 0.9)))


def real_batch(n):
    y = torch.randint(0, K, (n,))
    return CENTRES[y] + 0.08 * torch.randn(n, 2), y


@torch.no_grad()
def distance(gan):
    gan.eval()
    y = torch.arange(K).repeat(64)
    out = (gan.g(torch.randn(len(y), Z), y) - CENTRES[y]).norm(dim=1).mean().item()
    gan.train()
    return out


def main():
    np.random.seed(seed)
    torch.manual_seed(seed)
    gan = CondGAN()
    if backend:
        gan.g.compile(backend=backend)
        gan.d.compile(backend=backend)
    optimizers = gan.configure_optimizers()
    logs = []
    for it in range(STEPS):
        real, y = real_batch(BATCH)
        row = []
        for idx, opt in enumerate(optimizers):
            gan.zero_grad(set_to_none=True)
            loss = gan.training_step(real, y, idx)
            loss.backward()
            opt.step()
            row.append(loss.item())
        logs.append(row)
        if it % 125 == 0:
            print(f"it {it:4d}  G {row[0]:.3f}  D {row[1]:.3f}  distance to class centre {distance(gan):.3f}")
    d = distance(gan)
    print(json.dumps({"loss_first": round(logs[0][0], 4), "loss_last": round(float(np.mean([r[0] for r in logs[-20:]])), 4),
                      "metric_name": "centre_distance", "metric": round(d, 4), "ok": bool(d < 0.5)}))


if __name__ == "__main__":
    main()
