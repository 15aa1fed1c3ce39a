"""Behaviour cloning of a thruster controller with a tanh-squashed Gaussian policy, then a closed-loop check."""
import json
import math
import os
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

cfg = SimpleNamespace(
    variant=os.environ.get("CASE_VARIANT", "faulty"),
    seed=int(os.environ.get("CASE_SEED", "0")),
    backend=os.environ.get("CASE_COMPILE", ""),
    episodes=160, horizon=50, batch=64, updates=1600, lr=1e-3, width=64, log_std_range=(-4.0, 1.0),
)
torch.set_num_threads(1)
torch.manual_seed(cfg.seed)
rng = np.random.default_rng(cfg.seed)


class Lander:
    """Planar craft, state (x, y, vx, vy); two thrusters in [-1, 1]; drag and a crosswind that depends on height."""

    def __init__(self, n, rng):
        self.s = np.concatenate([rng.uniform(-1.5, 1.5, (n, 2)), rng.normal(0, 0.3, (n, 2))], 1)

    def step(self, a):
        pos, vel = self.s[:, :2], self.s[:, 2:]
        wind = np.stack([0.15 * np.sin(3 * pos[:, 1]), np.zeros(len(pos))], 1)
        vel = 0.92 * vel + 0.12 * (a + wind)
        self.s = np.concatenate([pos + 0.3 * vel, vel], 1)
        return np.abs(self.s[:, :2]).sum(1)


def expert(s, rng):
    a = -1.1 * s[:, :2] - 1.3 * s[:, 2:] - np.stack([0.15 * np.sin(3 * s[:, 1]), np.zeros(len(s))], 1)
    return np.clip(0.72 * a + rng.normal(0, 0.05, a.shape), -1.0, 1.0)


def collect():
    env, obs, act = Lander(cfg.episodes, rng), [], []
    for _ in range(cfg.horizon):
        a = expert(env.s, rng)
        obs.append(env.s.copy())
        act.append(a)
        env.step(a)
    return torch.tensor(np.concatenate(obs), dtype=torch.float32), torch.tensor(np.concatenate(act), dtype=torch.float32)


class SquashedGaussianPolicy(nn.Module):
    def __init__(self, obs_dim, act_dim, width):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.mean = nn.Linear(width, act_dim)
        self.log_std = nn.Linear(width, act_dim)

    def forward(self, obs):
        h = self.trunk(obs)
        lo, hi = cfg.log_std_range
        return self.mean(h), lo + 0.5 * (hi - lo) * (torch.tanh(self.log_std(h)) + 1)


def log_prob(mean, log_std, action):
    if cfg.variant == "fixed":
        action = action.clamp(-1 + 1e-3, 1 - 1e-3)
    raw = torch.atanh(action)
    gauss = -0.5 * ((raw - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)
    volume = 2 * (math.log(2) - raw - F.softplus(-2 * raw))
    return (gauss - volume).sum(-1)


obs, act = collect()
mu, sd = obs.mean(0), obs.std(0)
policy = SquashedGaussianPolicy(4, 2, cfg.width)
net = torch.compile(policy, backend=cfg.backend) if cfg.backend else policy
optim = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
print(f"{len(obs)} transitions, action mean {act.mean():.3f} std {act.std():.3f}")

curve = []
for update in range(cfg.updates):
    idx = torch.from_numpy(rng.integers(0, len(obs), cfg.batch))
    mean, log_std = net((obs[idx] - mu) / sd)
    nll = -log_prob(mean, log_std, act[idx]).mean()
    optim.zero_grad()
    nll.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 5.0)
    optim.step()
    curve.append(nll.item())
    if update % 200 == 0:
        print(f"update {update:5d}  nll {nll.item():8.4f}  std {log_std.exp().mean().item():.4f}")

env = Lander(200, np.random.default_rng(cfg.seed + 1000))
cost = []
for _ in range(cfg.horizon):
    with torch.no_grad():
        a = torch.tanh(policy((torch.tensor(env.s, dtype=torch.float32) - mu) / sd)[0]).numpy()
    cost.append(env.step(a).mean())
final = float(np.mean(cost[-10:]))
print(f"distance to the pad over the last ten steps: {final:.4f}")
f = lambda v: round(v, 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": f(curve[0]), "loss_last": f(float(np.mean(curve[-20:]))), "metric_name": "final_distance",
                  "metric": f(final), "ok": bool(final < 0.25)}))
