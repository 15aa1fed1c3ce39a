import os, json, math
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

FIXED = os.environ.get("CASE_VARIANT", "faulty") == "fixed"
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED); np.random.seed(SEED)
torch.set_num_threads(1)
T = 64


def heartbeats(n, rng):
    t = np.linspace(0, 1, T)[None]
    bump = lambda amp, c, w: amp[:, None] * np.exp(-0.5 * ((t - c[:, None]) / w[:, None]) ** 2)
    u = lambda a, b: rng.uniform(a, b, n)
    c = u(0.38, 0.55)
    inverted = np.where(rng.rand(n) < 0.3, -1.0, 1.0)
    x = (bump(u(0.1, 0.35), c - u(0.15, 0.22), u(0.02, 0.04)) + bump(-u(0.05, 0.3), c - 0.04, u(0.012, 0.02))
         + bump(u(0.8, 1.4), c, u(0.015, 0.05)) + bump(-u(0.1, 0.4), c + 0.05, u(0.012, 0.03))
         + bump(inverted * u(0.2, 0.6), c + u(0.2, 0.3), u(0.03, 0.07)))
    return (x + 0.02 * rng.randn(n, T)).astype(np.float32)


class BeatVAE(nn.Module):
    def __init__(self, z=8):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 16, 5, stride=2, padding=2), nn.SiLU(),
            nn.Conv1d(16, 32, 5, stride=2, padding=2), nn.SiLU(),
            nn.Conv1d(32, 32, 5, stride=2, padding=2), nn.SiLU(), nn.Flatten())
        self.to_mu = nn.Linear(32 * 8, z)
        self.to_logvar = nn.Linear(32 * 8, z)
        self.decoder = nn.Sequential(
            nn.Linear(z, 32 * 8), nn.SiLU(), nn.Unflatten(1, (32, 8)),
            nn.ConvTranspose1d(32, 32, 4, stride=2, padding=1), nn.SiLU(),
            nn.ConvTranspose1d(32, 16, 4, stride=2, padding=1), nn.SiLU(),
            nn.ConvTranspose1d(16, 1, 4, stride=2, padding=1))

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu) if self.training else mu
        return self.decoder(z), mu, logvar


def elbo_terms(rec, x, mu, logvar):
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    if FIXED:
        return F.mse_loss(rec, x, reduction="sum") / x.size(0), kl / x.size(0)
    return F.mse_loss(rec, x), kl


def beta_at(step, warm=60):
    return min(1.0, step / warm)


rng = np.random.RandomState(SEED + 5)
data = heartbeats(2400, rng)
m, s = data[:2000].mean(), data[:2000].std()
data = torch.from_numpy((data - m) / s).unsqueeze(1)
train, test = data[:2000], data[2000:]
dl = DataLoader(TensorDataset(train), batch_size=64, shuffle=True, drop_last=True)

vae = BeatVAE()
fwd = torch.compile(vae, backend=COMPILE) if COMPILE else vae
opt = torch.optim.Adam(vae.parameters(), lr=2e-3)
log, step = [], 0
for epoch in range(10):
    vae.train()
    for (xb,) in dl:
        rec, mu, logvar = fwd(xb)
        r, k = elbo_terms(rec, xb, mu, logvar)
        loss = r + beta_at(step) * k
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        log.append((loss.item(), r.item(), k.item()))
    a = np.mean(log[-31:], 0)
    if epoch % 2:
        print(f"epoch {epoch + 1} loss {a[0]:.4f} recon {a[1]:.4f} kl {a[2]:.5f}")

vae.eval()
with torch.no_grad():
    rec, mu, _ = vae(test)
    centered = test - train.mean(0, keepdim=True)
    r2 = 1 - ((rec - test) ** 2).sum().item() / (centered ** 2).sum().item()
f = lambda v: float(v) if math.isfinite(v) else None
print(f"spread of latent means {mu.std(0).mean().item():.4f}")
print(json.dumps({"loss_first": f(log[0][0]), "loss_last": f(np.mean([l[0] for l in log[-20:]])),
                  "metric_name": "recon_r2_over_mean_beat", "metric": f(r2), "ok": bool(r2 > 0.6)}))
