import copy
import json
import os
import random
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")

Batch = namedtuple("Batch", "s a r s2")


class PointReach:
    """n point masses that move in a box and should come to (and stay at) their own goal"""

    def __init__(self, n, rng, horizon=15):
        self.n, self.rng, self.horizon = n, rng, horizon
        self.reset()

    def obs(self):
        return np.concatenate([self.pos, self.goal], 1).astype(np.float32)

    def reset(self):
        self.pos = self.rng.uniform(-1, 1, (self.n, 2))
        self.goal = self.rng.uniform(-0.8, 0.8, (self.n, 2))
        self.t = 0
        return self.obs()

    def step(self, a):
        self.pos = np.clip(self.pos + 0.3 * a, -1.2, 1.2)
        d = np.linalg.norm(self.pos - self.goal, axis=1)
        self.t += 1
        return self.obs(), (-d).astype(np.float32), self.t >= self.horizon


class Actor(nn.Module):
    def __init__(self, hid=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hid), nn.ReLU(), nn.Linear(hid, hid), nn.ReLU())
        self.mu = nn.Linear(hid, 2)

    def forward(self, s):
        return torch.tanh(self.mu(self.body(s)))


class Critic(nn.Module):
    def __init__(self, hid=64):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(6, hid), nn.ReLU(), nn.Linear(hid, hid), nn.ReLU(), nn.Linear(hid, 1))

    def forward(self, s, a):
        return self.q(torch.cat([s, a], -1)).squeeze(-1)


class Replay:
    def __init__(self, cap=8000):
        self.cap, self.data, self.i = cap, {k: None for k in Batch._fields}, 0

    def push(self, **kw):
        for k, v in kw.items():
            old = self.data[k]
            self.data[k] = v if old is None else np.concatenate([old, v])[-self.cap:]

    def sample(self, n, rng):
        idx = rng.integers(0, len(self.data["r"]), n)
        return Batch(*(torch.from_numpy(self.data[k][idx]) for k in Batch._fields))


class Agent:
    def __init__(self, gamma=0.85, tau=0.02):
        self.actor, self.critic = Actor(), Critic()
        self.actor_t, self.critic_t = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.pi, self.q = self.actor, self.critic
        if BACKEND:
            self.pi = torch.compile(self.actor, backend=BACKEND)
            self.q = torch.compile(self.critic, backend=BACKEND)
        self.opt_a = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=3e-3)
        self.gamma, self.tau = gamma, tau

    def update(self, b):
        with torch.no_grad():
            y = b.r + self.gamma * self.critic_t(b.s2, self.actor_t(b.s2))
        critic_loss = F.smooth_l1_loss(self.q(b.s, b.a), y)
        self.opt_c.zero_grad()
        critic_loss.backward()
        self.opt_c.step()

        q_values = self.q(b.s, self.pi(b.s))
        actor_loss = q_values.mean() if VARIANT == "faulty" else -q_values.mean()
        self.opt_a.zero_grad()
        actor_loss.backward()
        self.opt_a.step()

        with torch.no_grad():
            for net, tgt in ((self.actor, self.actor_t), (self.critic, self.critic_t)):
                for p, q in zip(net.parameters(), tgt.parameters()):
                    q.lerp_(p, self.tau)
        return critic_loss.item(), actor_loss.item()

    @torch.no_grad()
    def act(self, s, noise, rng):
        a = self.actor(torch.from_numpy(s)).numpy()
        return np.clip(a + noise * rng.standard_normal(a.shape), -1, 1).astype(np.float32)


def evaluate(agent, rng):
    env = PointReach(200, rng)
    s, done = env.reset(), False
    while not done:
        s, r, done = env.step(agent.act(s, 0.0, rng))
    return float(-r.mean())


if __name__ == "__main__":
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    rng = np.random.default_rng(SEED)
    env, agent, buf = PointReach(16, rng), Agent(), Replay()
    s = env.reset()
    closs = []
    for it in range(480):
        if it < 30:
            a = rng.uniform(-1, 1, (env.n, 2)).astype(np.float32)
        else:
            a = agent.act(s, 0.3, rng)
        s2, r, done = env.step(a)
        buf.push(s=s, a=a, r=r, s2=s2)
        s = env.reset() if done else s2
        if it >= 100:
            lc, la = agent.update(buf.sample(128, rng))
            closs.append(lc)
            if it % 60 == 0:
                print(f"it {it} critic {lc:.4f} actor {la:.3f} final dist {evaluate(agent, np.random.default_rng(99)):.3f}")
    dist = evaluate(agent, np.random.default_rng(99))
    print(json.dumps({"loss_first": closs[0], "loss_last": float(np.mean(closs[-10:])),
                      "metric_name": "mean_final_distance", "metric": dist, "ok": dist < 0.3}))
