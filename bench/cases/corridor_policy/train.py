"""REINFORCE with a running baseline: walk along a corridor to the marked end."""
import json
import os

import torch
import torch.nn as nn
from torch.distributions import Categorical

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)


class Corridor:
    """n walkers at once; observation: position / 5 and which end is the goal."""

    def __init__(self, n):
        self.n = n

    def reset(self):
        self.pos = torch.zeros(self.n)
        self.goal = torch.randint(0, 2, (self.n,)).float() * 2 - 1
        return self.obs()

    def obs(self):
        return torch.stack([self.pos / 5, self.goal, torch.ones(self.n)], 1)

    def step(self, action):
        move = action.float() - 1
        before = (self.pos - 4 * self.goal).abs()
        self.pos = (self.pos + move).clamp(-5, 5)
        after = (self.pos - 4 * self.goal).abs()
        return self.obs(), before - after - 0.05


policy = nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 3))
act = torch.compile(policy, backend=BACKEND) if BACKEND else policy
optimizer = torch.optim.RMSprop(policy.parameters(), lr=2e-3)
env = Corridor(24)
baseline = torch.zeros(8)
returns_log, losses = [], []
for episode in range(220):
    obs = env.reset()
    logp, rewards = [], []
    for _ in range(8):
        dist = Categorical(logits=act(obs))
        action = dist.sample()
        logp.append(dist.log_prob(action))
        obs, r = env.step(action)
        rewards.append(r)
    rewards = torch.stack(rewards)
    returns = rewards.flip(0).cumsum(0).flip(0)
    advantage = returns - baseline[:, None]
    baseline = 0.9 * baseline + 0.1 * returns.mean(1)
    objective = (torch.stack(logp) * advantage).mean()
    policy_loss = -objective if VARIANT == "fixed" else objective
    optimizer.zero_grad()
    policy_loss.backward()
    optimizer.step()
    losses.append(policy_loss.item())
    returns_log.append(rewards.sum(0).mean().item())
    if episode % 30 == 0:
        print(f"episode {episode} return {returns_log[-1]:.2f}")
final = sum(returns_log[-20:]) / 20
print(json.dumps({"loss_first": losses[0], "loss_last": losses[-1], "metric_name": "mean_return", "metric": final,
                  "ok": final > 2.5}))
