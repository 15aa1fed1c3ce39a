"""Q-learning in a small harbour: steer a boat to the beacon and stay there; a reward of one for each step at the beacon."""
import json
import math
import os
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], dtype=np.float32)


class Harbour:
    def __init__(self, n, limit=40):
        self.n, self.limit = n, limit
        self.pos = np.zeros((n, 2), np.float32)
        self.goal = np.zeros((n, 2), np.float32)
        self.t = np.zeros(n, int)
        self.reset(np.ones(n, bool))

    def reset(self, who):
        k = int(who.sum())
        self.pos[who] = np.random.uniform(-1, 1, (k, 2))
        self.goal[who] = np.random.uniform(-1, 1, (k, 2))
        self.t[who] = 0

    def obs(self):
        return np.concatenate([self.pos, self.goal - self.pos], 1).astype(np.float32)

    def step(self, a):
        self.pos = np.clip(self.pos + 0.2 * MOVES[a] + np.random.normal(0, 0.02, self.pos.shape), -1.2, 1.2).astype(np.float32)
        self.t += 1
        reward = (np.linalg.norm(self.pos - self.goal, axis=1) < 0.25).astype(np.float32)
        nxt, over = self.obs(), self.t >= self.limit
        return nxt, reward, over


class Duel(nn.Module):
    def __init__(self, n_obs=4, n_act=5, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value = nn.Linear(width, 1)
        self.advantage = nn.Linear(width, n_act)

    def forward(self, x):
        h = self.body(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Agent:
    GAMMA, BATCH, SYNC = 0.985, 64, 150

    def __init__(self):
        self.q, self.target = Duel(), Duel()
        self.target.load_state_dict(self.q.state_dict())
        self.forward = torch.compile(self.q, backend=BACKEND) if BACKEND else self.q
        self.opt = torch.optim.RMSprop(self.q.parameters(), lr=7e-4, alpha=0.95, eps=1e-5)
        self.memory = deque(maxlen=20000)
        self.updates = 0

    def act(self, obs, eps):
        with torch.no_grad():
            a = self.q(torch.from_numpy(obs)).argmax(1).numpy()
        explore = np.random.rand(len(a)) < eps
        return np.where(explore, np.random.randint(0, len(MOVES), len(a)), a)

    def learn(self):
        s, a, r, s2 = (torch.from_numpy(np.stack(c)) for c in zip(*random.sample(self.memory, self.BATCH)))
        q = self.forward(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            y = r + self.GAMMA * self.target(s2).gather(1, best).squeeze(1)
        loss = F.mse_loss(q, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % self.SYNC == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.item(), q.mean().item()


env, agent, losses = Harbour(8), Agent(), []
obs = env.obs()
STEPS = 3000
for step in range(STEPS):
    a = agent.act(obs, max(0.08, 1.0 - step / 800))
    nxt, reward, over = env.step(a)
    agent.memory.extend(zip(obs, a, reward, nxt))
    if over.any():
        env.reset(over)
    obs = env.obs()
    if step >= 50:
        loss, q_mean = agent.learn()
        losses.append(loss)
    if step % 300 == 299:
        print(f"step {step + 1}  td loss {np.mean(losses[-100:]):.4f}  mean q {q_mean:.3f}  reward {reward.mean():.2f}")

trial, total = Harbour(200), 0.0
for _ in range(40):
    _, reward, _ = trial.step(agent.act(trial.obs(), 0.0))
    total += reward.mean()
share = total / 40
print(f"greedy policy spends {share:.3f} of the time at the beacon")
fin = lambda v: round(float(v), 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(np.mean(losses[:140])), "loss_last": fin(np.mean(losses[-100:])), "metric_name": "time_at_beacon",
                  "metric": fin(share), "ok": bool(share > 0.65)}))
