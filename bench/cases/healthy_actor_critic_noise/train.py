"""Advantage actor-critic on a small stochastic control task: keep a drifting point near zero."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)

from torch.distributions import Normal


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(2, 38), nn.Tanh())
        self.mu = nn.Linear(38, 1)
        self.log_std = nn.Parameter(torch.tensor(-0.3))
        self.value = nn.Linear(38, 1)

    def forward(self, s):
        h = self.shared(s)
        return self.mu(h).squeeze(-1), self.value(h).squeeze(-1)


N, HORIZON = 30, 12
model = ActorCritic()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=6e-3)
scores, log = [], []
for it in range(220):
    pos, vel = torch.randn(N), torch.zeros(N)
    logp, vals, rews, ent = [], [], [], []
    for _ in range(HORIZON):
        mu, v = net(torch.stack([pos, vel], 1))
        pi = Normal(mu, model.log_std.exp())
        a = pi.sample()
        logp.append(pi.log_prob(a)); vals.append(v); ent.append(pi.entropy().mean())
        vel = 0.6 * vel + 0.4 * a.clamp(-2, 2) + 0.1 * torch.randn(N)
        pos = pos + vel + 0.15 * torch.randn(N)
        rews.append(-(pos ** 2).clamp(max=9))
    ret, acc = [], torch.zeros(N)
    for r in reversed(rews):
        acc = r + 0.9 * acc
        ret.insert(0, acc)
    ret = torch.stack(ret) / 5
    vals, logp = torch.stack(vals), torch.stack(logp)
    adv = (ret - vals).detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    loss = -(logp * adv).mean() + 0.5 * F.mse_loss(vals, ret) - 0.002 * torch.stack(ent).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    log.append(loss.item())
    scores.append(torch.stack(rews).mean().item())
    if it % 40 == 0:
        print(f"{it} reward {scores[-1]:.3f} loss {loss.item():.3f}")
score = sum(scores[-20:]) / 20
print(json.dumps({"loss_first": log[0], "loss_last": log[-1], "metric_name": "mean_reward", "metric": score, "ok": score > -1.2}))
