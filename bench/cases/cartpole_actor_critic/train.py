"""Synchronous advantage actor-critic on 16 pole-balancing environments (numpy re-implementation of the usual physics)."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)


class VecPole:
    def __init__(self, n, seed, limit=200):
        self.n, self.limit = n, limit
        self.rng = np.random.default_rng(seed)
        self.s = self.rng.uniform(-0.05, 0.05, (n, 4))
        self.t = np.zeros(n, dtype=int)

    def obs(self):
        return torch.tensor(self.s, dtype=torch.float32)

    def step(self, action):
        x, v, th, w = self.s.T
        force = np.where(action == 1, 10.0, -10.0)
        temp = (force + 0.05 * w ** 2 * np.sin(th)) / 1.1
        ang = (9.8 * np.sin(th) - np.cos(th) * temp) / (0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1))
        acc = temp - 0.05 * ang * np.cos(th) / 1.1
        self.s = np.stack([x + 0.02 * v, v + 0.02 * acc, th + 0.02 * w, w + 0.02 * ang], 1)
        self.t += 1
        fell = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.2095)
        done = fell | (self.t >= self.limit)
        lengths = self.t[done].tolist()
        self.s[done] = self.rng.uniform(-0.05, 0.05, (int(done.sum()), 4))
        self.t[done] = 0
        return torch.ones(self.n), torch.tensor(done), lengths


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x):
        return self.actor(x), self.critic(x).squeeze(-1)


gamma, horizon, updates = 0.97, 20, 220
env = VecPole(16, SEED)
agent = ActorCritic()
if BACKEND:
    agent = torch.compile(agent, backend=BACKEND)
opt = torch.optim.Adam(agent.parameters(), lr=4e-3)
anneal = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=updates)

history, recent = [], []
for update in range(updates):
    S, A, R, D = [], [], [], []
    for _ in range(horizon):
        s = env.obs()
        with torch.no_grad():
            a = Categorical(logits=agent(s)[0]).sample()
        r, d, lengths = env.step(a.numpy())
        S.append(s), A.append(a), R.append(r), D.append(d)
        recent = (recent + lengths)[-40:]
    with torch.no_grad():
        ret = agent(env.obs())[1]
    targets = []
    for r, d in zip(reversed(R), reversed(D)):
        ret = r + gamma * ret * (~d).float()
        targets.append(ret)
    target = torch.stack(targets[::-1]).flatten()
    logits, value = agent(torch.cat(S))
    dist = Categorical(logits=logits)
    adv = target - value.detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    policy_loss = -(dist.log_prob(torch.cat(A)) * adv).mean()
    value_loss = ((target - value) ** 2).mean()
    loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 5.0)
    opt.step()
    anneal.step()
    history.append(loss.item())
    if (update + 1) % 20 == 0:
        print(f"update {update + 1:3d}  loss {np.mean(history[-20:]):8.3f}  policy {policy_loss.item():+.3f}  "
              f"value {value_loss.item():8.3f}  episode length {np.mean(recent):.1f}")

score = float(np.mean(recent))
print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])), "metric_name": "episode_length",
                  "metric": score, "ok": score > 100}))
