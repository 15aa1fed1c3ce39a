"""Behaviour cloning of a scripted cart-balancing expert from recorded rollouts."""
import json
import os

import numpy as np
import torch
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)


class VecCart:
    """A batch of point carts with poles, simple Euler steps and random kicks."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.obs = np.zeros((n, 4), np.float32)

    def reset(self):
        self.obs[:] = self.rng.normal(size=(self.n, 4)) * [1.0, 0.5, 0.6, 0.5]
        return self.obs

    def step(self, action):
        push = (action - 1) * 1.0
        pos, vel, ang, rate = self.obs.T.copy()
        kick = self.rng.normal(size=(2, self.n)) * 0.5
        self.obs[:, 0] = pos + 0.1 * vel
        self.obs[:, 1] = 0.97 * vel + 0.2 * push + 0.3 * kick[0]
        self.obs[:, 2] = ang + 0.1 * rate
        self.obs[:, 3] = 0.95 * rate + 0.15 * ang - 0.2 * push + kick[1] * 0.3
        lost = (np.abs(self.obs[:, 2]) > 2) | (np.abs(self.obs[:, 0]) > 3)
        fresh = self.rng.normal(size=(self.n, 4)) * [1.0, 0.5, 0.6, 0.5]
        self.obs[lost] = fresh[lost]
        return self.obs


def expert(obs):
    drive = 1.5 * obs[:, 2] + 0.8 * obs[:, 3] - 0.3 * obs[:, 0] - 0.3 * obs[:, 1]
    return np.digitize(drive, [-0.35, 0.35])


def record(env, steps):
    states, actions = [], []
    obs = env.reset()
    for _ in range(steps):
        act = expert(obs)
        states.append(obs.copy() if VARIANT == "fixed" else obs)
        actions.append(act)
        obs = env.step(act)
    return np.concatenate(states), np.concatenate(actions)


s, a = record(VecCart(16, SEED), 250)
s, a = torch.tensor(s), torch.tensor(a)
print("recorded", tuple(s.shape), "action counts", torch.bincount(a).tolist())

probe = np.random.default_rng(SEED + 7).normal(size=(1000, 4)).astype(np.float32) * [1.0, 0.5, 0.6, 0.5]
probe_x, probe_y = torch.tensor(probe, dtype=torch.float32), torch.tensor(expert(probe))

policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
model = torch.compile(policy, backend=COMPILE) if COMPILE else policy
opt = torch.optim.Adam(policy.parameters(), lr=2e-3)
trace = []
for epoch in range(6):
    order = torch.randperm(len(s))
    for k in range(0, len(s) - 79, 80):
        idx = order[k:k + 80]
        loss = nn.functional.cross_entropy(model(s[idx]), a[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        trace.append(loss.item())
    print(f"epoch {epoch}: imitation loss {np.mean(trace[-50:]):.4f}")

with torch.no_grad():
    agree = (policy(probe_x).argmax(1) == probe_y).float().mean().item()
print(json.dumps({"loss_first": trace[0], "loss_last": float(np.mean(trace[-20:])), "metric_name": "agreement",
                  "metric": agree, "ok": agree > 0.88}))
