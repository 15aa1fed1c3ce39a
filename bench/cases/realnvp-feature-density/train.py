import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import make_moons
from sklearn.mixture import GaussianMixture

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)


class AffineCoupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.d1 = dim // 2
        self.flip = flip
        self.param_map = nn.Sequential(nn.Linear(self.d1, hidden), nn.LeakyReLU(0.01),
                                       nn.Linear(hidden, hidden), nn.LeakyReLU(0.01),
                                       nn.Linear(hidden, 2 * (dim - self.d1)))
        nn.init.normal_(self.param_map[-1].weight, std=0.01)
        nn.init.zeros_(self.param_map[-1].bias)

    def forward(self, x):
        if self.flip:
            x = x.flip(-1)
        a, b = x[:, :self.d1], x[:, self.d1:]
        s, t = self.param_map(a).chunk(2, -1)
        s = 2.0 * torch.tanh(s / 2.0)
        b = b * s.exp() + t
        z = torch.cat([a, b], -1)
        if self.flip:
            z = z.flip(-1)
        return z, s.sum(-1)


class DiagGaussian(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(dim))
        self.log_scale = nn.Parameter(torch.zeros(dim))

    def log_prob(self, z):
        u = (z - self.loc) / self.log_scale.exp()
        return (-0.5 * u ** 2 - self.log_scale - 0.5 * math.log(2 * math.pi)).sum(-1)


class RealNVP(nn.Module):
    def __init__(self, dim=4, hidden=48, n_flows=8):
        super().__init__()
        self.base = DiagGaussian(dim)
        self.flows = nn.ModuleList([AffineCoupling(dim, hidden, flip=bool(i % 2)) for i in range(n_flows)])

    def forward(self, x):
        logdet = x.new_zeros(len(x))
        for f in self.flows:
            x, ld = f(x)
            logdet = logdet + ld
        return self.base.log_prob(x) + logdet


def make_features(n, rng_seed):
    """Penultimate-layer-like features: two curved clusters, linearly mixed."""
    m1, _ = make_moons(n, noise=0.07, random_state=rng_seed)
    m2, _ = make_moons(n, noise=0.07, random_state=rng_seed + 1)
    x = np.concatenate([m1, m2], 1)[:, [0, 2, 1, 3]]
    mix = np.random.default_rng(3).normal(size=(4, 4)) * 0.15 + np.eye(4)
    return x @ mix


raw_train, raw_test = make_features(3000, 10 + SEED), make_features(1000, 900 + SEED)
mu, sd = raw_train.mean(0), raw_train.std(0)
xtr = torch.tensor((raw_train - mu) / sd, dtype=torch.float32)
xte = torch.tensor((raw_test - mu) / sd, dtype=torch.float32)

gmm = GaussianMixture(1, random_state=0).fit(xtr.numpy())
gauss_ll = gmm.score(xte.numpy())
print(f"single gaussian test log-likelihood {gauss_ll:.3f}")

flow = RealNVP()
model = torch.compile(flow, backend=COMPILE) if COMPILE else flow
learning_rate = 2e-3 if VARIANT == "fixed" else 2e-6
optimizer = torch.optim.Adam(flow.parameters(), lr=learning_rate, weight_decay=1e-5)

loss_hist = []
for it in range(300):
    x = xtr[torch.randint(0, len(xtr), (256,))]
    optimizer.zero_grad()
    loss = -model(x).mean()
    if torch.isfinite(loss):
        loss.backward()
        optimizer.step()
    loss_hist.append(loss.item())
    if it % 60 == 0:
        print(f"iter {it:4d}  forward KL {loss_hist[-1]:.4f}")

flow.eval()
with torch.no_grad():
    ll = flow(xte).mean().item()
print(f"flow test log-likelihood {ll:.3f}")
clean = [v if math.isfinite(v) else None for v in (loss_hist[0], float(np.mean(loss_hist[-10:])))]
print(json.dumps({"loss_first": clean[0], "loss_last": clean[1], "metric_name": "test_loglik_gain_over_gaussian",
                  "metric": ll - gauss_ll, "ok": ll - gauss_ll > 0.5}))
