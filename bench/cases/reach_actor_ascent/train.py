"""Deterministic actor-critic (DDPG style) for a one-joint arm that has to hold a commanded angle."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

GAMMA, TAU, HORIZON = 0.9, 0.02, 12


class Arm:
    """n arms stepped at once: state = (angle, velocity, goal)"""

    def __init__(self, n):
        self.n = n
        self.reset()

    def reset(self):
        self.angle = torch.rand(self.n, 1) * 2 - 1
        self.vel = torch.zeros(self.n, 1)
        self.goal = torch.rand(self.n, 1) * 2 - 1
        return self.obs()

    def obs(self):
        return torch.cat([self.angle, self.vel, self.goal], 1)

    def step(self, act):
        self.vel = 0.4 * self.vel + 0.5 * act
        self.angle = (self.angle + self.vel).clamp(-2, 2)
        reward = -(self.angle - self.goal).abs() - 0.02 * act.pow(2)
        return self.obs(), reward


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.mu = nn.Linear(64, 1)

    def forward(self, s):
        return torch.tanh(self.mu(self.body(s)))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, s, a):
        return self.net(torch.cat([s, a], 1))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = Actor()
        self.critic = Critic()


def evaluate(actor):
    env = Arm(256)
    s = env.reset()
    total = 0.0
    with torch.no_grad():
        for _ in range(HORIZON):
            s, r = env.step(actor(s))
            total += r.mean().item()
    return total / HORIZON


agent, target = Agent(), Agent()
target.load_state_dict(agent.state_dict())
target.requires_grad_(False)
actor = torch.compile(agent.actor, backend=BACKEND) if BACKEND else agent.actor
critic = torch.compile(agent.critic, backend=BACKEND) if BACKEND else agent.critic
opt_actor = torch.optim.Adam(agent.actor.parameters(), lr=1e-3)
opt_critic = torch.optim.Adam(agent.critic.parameters(), lr=3e-3)

env = Arm(16)
state = env.reset()
memory = []
closs_log = []
print("return before training", round(evaluate(agent.actor), 3))
for step in range(400):
    with torch.no_grad():
        action = (agent.actor(state) + 0.4 * torch.randn(16, 1)).clamp(-1, 1)
    nxt, reward = env.step(action)
    memory.append((state, action, reward, nxt))
    state = env.reset() if (step + 1) % HORIZON == 0 else nxt
    if len(memory) < 8:
        continue
    rows = random.sample(memory, 8)
    s, a, r, s2 = (torch.cat(x) for x in zip(*rows))

    with torch.no_grad():
        y = r + GAMMA * target.critic(s2, target.actor(s2))
    critic_loss = F.mse_loss(critic(s, a), y)
    opt_critic.zero_grad()
    critic_loss.backward()
    opt_critic.step()

    q = critic(s, actor(s))
    actor_loss = -q.mean() if VARIANT == "fixed" else q.mean()
    opt_actor.zero_grad()
    actor_loss.backward()
    opt_actor.step()

    with torch.no_grad():
        for p, tp in zip(agent.parameters(), target.parameters()):
            tp.lerp_(p, TAU)
    closs_log.append(critic_loss.item())
    if step % 50 == 0:
        print(f"step {step}: critic {critic_loss.item():.4f} actor {actor_loss.item():.4f}")

score = evaluate(agent.actor)


def num(v):
    return round(v, 5) if math.isfinite(v) else None


print(json.dumps({"loss_first": num(closs_log[0]), "loss_last": num(float(np.mean(closs_log[-20:]))),
                  "metric_name": "mean_reward", "metric": num(score), "ok": bool(score > -0.35)}))
