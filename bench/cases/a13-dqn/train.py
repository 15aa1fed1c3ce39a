"""Double DQN with a target network on a noisy corridor (walk right past a tempting small reward)."""
import copy
import json
import os
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
torch.set_num_threads(1)


class Corridor:
    """9 cells; left end pays 1, right end pays 10; slips 10% of the time; 30 steps at most"""

    size, limit = 9, 30

    def reset(self):
        self.pos, self.t = 3, 0
        return self.obs()

    def obs(self):
        v = np.zeros(self.size, np.float32)
        v[self.pos] = 1
        return v

    def step(self, a):
        if random.random() < 0.1:
            a = 1 - a
        self.pos += 1 if a else -1
        self.t += 1
        r = 1.0 if self.pos == 0 else 10.0 if self.pos == self.size - 1 else -0.05
        done = self.pos in (0, self.size - 1)
        return self.obs(), r, done, done or self.t >= self.limit


class DuelingQ(nn.Module):
    def __init__(self, n_obs, n_act, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value, self.adv = nn.Linear(width, 1), nn.Linear(width, n_act)

    def forward(self, x):
        h = self.body(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


class Replay:
    def __init__(self, size):
        self.mem = deque(maxlen=size)

    def push(self, *tr):
        self.mem.append(tr)

    def sample(self, n):
        s, a, r, s2, d = zip(*random.sample(self.mem, n))
        return (torch.tensor(np.stack(s)), torch.tensor(a), torch.tensor(r, dtype=torch.float32),
                torch.tensor(np.stack(s2)), torch.tensor(d, dtype=torch.float32))


env, gamma = Corridor(), 0.97
online = DuelingQ(env.size, 2)
target = copy.deepcopy(online).requires_grad_(False)
q_fn = torch.compile(online, backend=COMPILE) if COMPILE else online
opt = torch.optim.RMSprop(online.parameters(), lr=2e-3, alpha=0.95, eps=1e-2, centered=True)
replay = Replay(3000)

losses, returns, obs, ep = [], deque(maxlen=20), env.reset(), 0.0
updates, frame = 0, 0
while updates < 400:
    eps = max(0.1, 1.0 - frame / 1200)
    if random.random() < eps:
        act = random.randrange(2)
    else:
        with torch.no_grad():
            act = online(torch.from_numpy(obs)[None]).argmax(1).item()
    nxt, r, done, over = env.step(act)
    replay.push(obs, act, r, nxt, float(done))
    obs, ep, frame = nxt, ep + r, frame + 1
    if over:
        returns.append(ep)
        obs, ep = env.reset(), 0.0
    if frame > 300 and frame % 4 == 0:
        s, a, rew, s2, d = replay.sample(48)
        with torch.no_grad():
            best = online(s2).argmax(1, keepdim=True)
            y = rew + gamma * (1 - d) * target(s2).gather(1, best).squeeze(1)
        q = q_fn(s).gather(1, a[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        updates += 1
        losses.append(loss.item())
        if updates % 20 == 0:
            target.load_state_dict(online.state_dict())
        if updates % 50 == 0:
            print(f"update {updates} td {loss.item():.4f} eps {eps:.2f} return {np.mean(returns):.2f}")

# greedy evaluation
total = []
for _ in range(50):
    obs, ret, over = env.reset(), 0.0, False
    while not over:
        with torch.no_grad():
            act = online(torch.from_numpy(obs)[None]).argmax(1).item()
        obs, r, _, over = env.step(act)
        ret += r
    total.append(ret)
score = float(np.mean(total))
print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-20:])), "metric_name": "greedy_return",
                  "metric": score, "ok": score > 8.0}))
