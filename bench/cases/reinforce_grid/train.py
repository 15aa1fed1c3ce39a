import json
import math
import os
import random

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)

SIDE, HORIZON, ENVS, GAMMA = 5, 14, 24, 0.95
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi = nn.Linear(64, 4)

    def forward(self, obs):
        return self.pi(self.body(obs))


def reset(n):
    pos, goal = torch.randint(0, SIDE, (n, 2)), torch.randint(0, SIDE, (n, 2))
    clash = (pos == goal).all(1)
    goal[clash] = (goal[clash] + 1) % SIDE
    return pos, goal


def rollout(model, n, greedy=False):
    pos, goal = reset(n)
    alive = torch.ones(n)
    logps, rewards, mask = [], [], []
    for _ in range(HORIZON):
        obs = torch.cat([pos, goal], 1).float() / (SIDE - 1) * 2 - 1
        dist = Categorical(logits=model(obs))
        act = dist.logits.argmax(1) if greedy else dist.sample()
        new = (pos + MOVES[act]).clamp(0, SIDE - 1)
        near = (pos - goal).abs().sum(1) - (new - goal).abs().sum(1)
        done = (new == goal).all(1).float()
        logps.append(dist.log_prob(act))
        rewards.append((0.3 * near - 0.1 + 2.0 * done) * alive)
        mask.append(alive)
        alive = alive * (1 - done)
        pos = new
    return torch.stack(logps), torch.stack(rewards), torch.stack(mask), 1 - alive


policy = Policy()
model = torch.compile(policy, backend=backend) if backend else policy
optim = torch.optim.Adam(policy.parameters(), lr=5e-3)
losses, returns = [], []
for update in range(220):
    logp, rew, mask, reached = rollout(model, ENVS)
    ret = torch.zeros_like(rew)
    run = torch.zeros(ENVS)
    for t in reversed(range(HORIZON)):
        run = rew[t] + GAMMA * run
        ret[t] = run
    valid = mask > 0
    adv = (ret - ret[valid].mean()) / (ret[valid].std() + 1e-6)
    loss = -(logp * adv * mask).sum() / ENVS
    optim.zero_grad()
    loss.backward()
    optim.step()
    losses.append(loss.item())
    returns.append(rew.sum(0).mean().item())
    if update % 20 == 0:
        print(f"update {update:3d} policy loss {loss.item():+.3f} return {np.mean(returns[-20:]):.3f}")

with torch.no_grad():
    success = rollout(model, 500, greedy=True)[3].mean().item()
f = lambda v: round(float(v), 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": f(losses[0]), "loss_last": f(losses[-1]), "metric_name": "success_rate", "metric": f(success),
                  "ok": bool(success > 0.9)}))
