"""Double DQN on a small grid with a far goal; target network copied every few hundred updates."""
import json
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


class Grid:
    """6x6 cells, start top left, goal bottom right (+20), each step costs 0.1, at most 40 steps."""
    N, MOVES = 6, ((0, 1), (1, 0), (0, -1), (-1, 0))

    def reset(self):
        self.p, self.t = [0, 0], 0
        return self.obs()

    def obs(self):
        o = np.zeros(self.N * 2, np.float32)
        o[self.p[0]] = o[self.N + self.p[1]] = 1
        return o

    def step(self, a):
        dr, dc = self.MOVES[a]
        self.p = [min(max(self.p[0] + dr, 0), self.N - 1), min(max(self.p[1] + dc, 0), self.N - 1)]
        self.t += 1
        goal = self.p == [self.N - 1, self.N - 1]
        return self.obs(), 20.0 if goal else -0.1, goal, self.t >= 40


class Dueling(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.value, self.adv = nn.Linear(64, 1), nn.Linear(64, 4)

    def forward(self, x):
        h = self.trunk(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Agent:
    def __init__(self):
        self.online, self.target = Dueling(), Dueling()
        self.sync()
        self.q = torch.compile(self.online, backend=BACKEND) if BACKEND else self.online
        self.opt = torch.optim.Adam(self.online.parameters(), lr=1e-3)
        self.memory = deque(maxlen=8000)
        self.updates = 0

    def sync(self):
        self.target.load_state_dict(self.online.state_dict())

    @torch.no_grad()
    def act(self, o, eps):
        if random.random() < eps:
            return random.randrange(4)
        return int(self.online(torch.from_numpy(o)[None]).argmax())

    def learn(self, n=64, gamma=0.98):
        o, a, r, o2, d = zip(*random.sample(self.memory, n))
        o, o2 = torch.from_numpy(np.stack(o)), torch.from_numpy(np.stack(o2))
        a, r, d = torch.tensor(a), torch.tensor(r), torch.tensor(d, dtype=torch.float32)
        with torch.no_grad():
            best = self.online(o2).argmax(1, keepdim=True)
            y = r + gamma * (1 - d) * self.target(o2).gather(1, best).squeeze(1)
        pred = self.q(o).gather(1, a[:, None]).squeeze(1)
        loss = F.mse_loss(pred, y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.opt.step()
        self.updates += 1
        if self.updates % 250 == 0:
            self.sync()
        return loss.item(), pred.mean().item()


def evaluate(agent):
    env, ret = Grid(), 0.0
    o, done, cut = env.reset(), False, False
    while not (done or cut):
        o, r, done, cut = env.step(agent.act(o, 0.0))
        ret += r
    return ret


env, agent = Grid(), Agent()
losses, o, frames = [], env.reset(), 6500
returns, total = deque(maxlen=40), 0.0
for f in range(frames):
    eps = max(0.1, 1 - f / 4000)
    a = agent.act(o, eps)
    o2, r, done, cut = env.step(a)
    agent.memory.append((o, a, r, o2, done))
    total += r
    if done or cut:
        returns.append(total)
        o2, total = env.reset(), 0.0
    o = o2
    if f >= 200:
        l, q = agent.learn()
        losses.append(l)
        if f % 500 == 0:
            print(f"frame {f:5d} eps {eps:.2f} td loss {np.mean(losses[-100:]):.4f} mean q {q:.3f} greedy return {evaluate(agent):.2f}")
ret = float(np.mean(returns))
print(json.dumps({"loss_first": round(losses[0], 4), "loss_last": round(float(np.mean(losses[-100:])), 4),
                  "metric_name": "mean_return_last_40", "metric": round(ret, 3), "ok": bool(ret > 15.0)}))
