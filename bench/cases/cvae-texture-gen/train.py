import json
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

SIZE, N_CLASS = 16, 6
yy, xx = np.mgrid[0:SIZE, 0:SIZE] / SIZE


def draw(kind, rng):
    """Cross-sections of six rock fabrics."""
    ph = rng.uniform(0, 0.25)
    if kind == 0:
        img = np.sin(2 * np.pi * (3 * yy + ph))
    elif kind == 1:
        img = np.sin(2 * np.pi * (3 * xx + ph))
    elif kind == 2:
        img = np.sin(2 * np.pi * (2 * xx + 2 * yy + ph))
    elif kind == 3:
        img = np.sin(2 * np.pi * (2 * xx - 2 * yy + ph))
    elif kind == 4:
        img = np.sign(np.sin(2 * np.pi * (2 * xx + ph)) * np.sin(2 * np.pi * (2 * yy + ph)))
    else:
        img = np.cos(2 * np.pi * 3 * np.hypot(xx - 0.5, yy - 0.5) + 2 * ph)
    img = img * rng.uniform(0.7, 1.0) + rng.normal(0, 0.15, img.shape)
    return (img - img.min()) / (img.max() - img.min())


class StrataImages:
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.labels = torch.tensor(rng.integers(0, N_CLASS, n))
        self.images = torch.tensor(np.array([draw(int(k), rng) for k in self.labels]), dtype=torch.float32)
        self.reset()

    def reset(self):
        self.order = torch.randperm(len(self.labels))
        self.cursor = 0

    def next_batch(self, bs):
        if self.cursor + bs > len(self.labels):
            self.reset()
        rows = slice(self.cursor, self.cursor + bs)
        pick = self.order[rows]
        self.cursor += bs
        if VARIANT == "fixed":
            return self.images[pick], self.labels[pick]
        return self.images[pick], self.labels[rows]


class Encoder(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, 128), nn.LeakyReLU(0.2), nn.Linear(128, 64), nn.LeakyReLU(0.2))
        self.mu = nn.Linear(64 + N_CLASS, z)
        self.logvar = nn.Linear(64 + N_CLASS, z)

    def forward(self, x, c):
        h = torch.cat([self.body(x), c], 1)
        return self.mu(h), self.logvar(h).clamp(-8, 8)


class Decoder(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(z + N_CLASS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, SIZE * SIZE))

    def forward(self, z, c):
        return self.net(torch.cat([z, c], 1)).view(-1, SIZE, SIZE)


class CondVAE(nn.Module):
    def __init__(self, z=4):
        super().__init__()
        self.encoder, self.decoder = Encoder(z), Decoder(z)

    def forward(self, x, label, eps):
        c = F.one_hot(label, N_CLASS).float()
        mu, logvar = self.encoder(x, c)
        return self.decoder(mu + eps * (0.5 * logvar).exp(), c), mu, logvar


def prototypes(seed):
    rng = np.random.default_rng(seed)
    return [torch.tensor(np.array([draw(k, rng) for _ in range(60)]), dtype=torch.float32) for k in range(N_CLASS)]


def judge(img, protos):
    """Which fabric does a generated image look like (nearest reference image)."""
    dist = torch.stack([torch.cdist(img.flatten(1), p.flatten(1)).min(1).values for p in protos], 1)
    return dist.argmin(1)


data = StrataImages(2400, SEED)
vae = CondVAE()
model = torch.compile(vae, backend=COMPILE) if COMPILE else vae
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
steps, history = 400, []
for it in range(steps):
    x, y = data.next_batch(48)
    rec, mu, logvar = model(x, y, torch.randn(len(x), 4))
    bce = F.binary_cross_entropy_with_logits(rec, x, reduction="sum") / len(x)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    loss = bce + min(1.0, it / 150) * 2.0 * kl
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
    opt.step()
    history.append(loss.item())
    if it % 50 == 0:
        print(f"iter {it} elbo {loss.item():.2f} bce {bce.item():.2f} kl {kl.item():.2f}")

vae.eval()
with torch.no_grad():
    want = torch.arange(N_CLASS).repeat(40)
    made = torch.sigmoid(vae.decoder(torch.randn(len(want), 4), F.one_hot(want, N_CLASS).float()))
    acc = (judge(made, prototypes(SEED + 99)) == want).float().mean().item()
print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])), "metric_name": "requested_class_accuracy", "metric": acc, "ok": acc > 0.8}))
