"""Advantage actor-critic on a batch of cart-poles simulated in numpy."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
HORIZON = 200


class CartPoles:
    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.s = np.zeros((n, 4))
        self.t = np.zeros(n, int)
        self.lengths = []
        self._reset(np.ones(n, bool))

    def _reset(self, m):
        self.s[m] = self.rng.uniform(-0.05, 0.05, (int(m.sum()), 4))
        self.t[m] = 0

    def obs(self):
        return self.s.astype(np.float32)

    def step(self, a):
        x, v, th, w = self.s.T
        force = np.where(a == 1, 10.0, -10.0)
        c, sn = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w ** 2 * sn) / 1.1
        acc_th = (9.8 * sn - c * tmp) / (0.5 * (4 / 3 - 0.1 * c ** 2 / 1.1))
        acc = tmp - 0.05 * acc_th * c / 1.1
        self.s = np.stack([x + 0.02 * v, v + 0.02 * acc, th + 0.02 * w, w + 0.02 * acc_th], 1)
        self.t += 1
        fell = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.209)
        timeout = (self.t >= HORIZON) & ~fell
        last = self.obs()
        done = fell | timeout
        self.lengths += self.t[done].tolist()
        if done.any():
            self._reset(done)
        return last, np.ones(self.n, np.float32), fell, timeout


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.v = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.orthogonal_(m.weight, math.sqrt(2))
                nn.init.zeros_(m.bias)
        nn.init.orthogonal_(self.pi[-1].weight, 0.01)

    def forward(self, o):
        return self.pi(o), self.v(o).squeeze(-1)


class Agent:
    gamma, lam, ent, vf = 0.99, 0.95, 0.01, 0.5

    def __init__(self, envs):
        self.envs = envs
        self.net = ActorCritic()
        self.call = torch.compile(self.net, backend=BACKEND) if BACKEND else self.net
        self.opt = torch.optim.RMSprop(self.net.parameters(), lr=2e-3, alpha=0.99, eps=1e-5)

    def collect(self, T):
        O, A, R, V, D = [], [], [], [], []
        for _ in range(T):
            o = torch.from_numpy(self.envs.obs())
            with torch.no_grad():
                logits, v = self.call(o)
                a = Categorical(logits=logits).sample()
                last, r, fell, timeout = self.envs.step(a.numpy())
                r = torch.from_numpy(r)
                if timeout.any():
                    r = r + self.gamma * self.call(torch.from_numpy(last))[1] * torch.from_numpy(timeout).float()
            O.append(o); A.append(a); R.append(r); V.append(v)
            D.append(torch.from_numpy(fell | timeout).float())
        with torch.no_grad():
            nxt = self.call(torch.from_numpy(self.envs.obs()))[1]
        adv, g = [], torch.zeros_like(nxt)
        for t in reversed(range(T)):
            keep = 1 - D[t]
            g = R[t] + self.gamma * nxt * keep - V[t] + self.gamma * self.lam * keep * g
            adv.append(g)
            nxt = V[t]
        adv = torch.stack(adv[::-1])
        return torch.cat(O), torch.cat(A), adv.flatten(), (adv + torch.stack(V)).flatten()

    def learn(self, o, a, adv, ret):
        logits, v = self.call(o)
        d = Categorical(logits=logits)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        pg = -(d.log_prob(a) * adv).mean()
        vl = (v - ret).pow(2).mean()
        h = d.entropy().mean()
        loss = pg + self.vf * vl - self.ent * h
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.opt.step()
        return loss.item(), vl.item(), h.item()


def main():
    torch.set_num_threads(1)
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    agent = Agent(CartPoles(16, np.random.default_rng(SEED)))
    losses = []
    for it in range(360):
        loss, vl, h = agent.learn(*agent.collect(16))
        losses.append(loss)
        if it % 50 == 0:
            print(f"update {it:4d} loss {loss:9.3f} value {vl:9.3f} entropy {h:.3f} len {np.mean(agent.envs.lengths[-40:] or [0]):.1f}")
    first = np.mean(agent.envs.lengths[:40])
    test = CartPoles(40, np.random.default_rng(SEED + 99))
    while len(test.lengths) < 40:
        with torch.no_grad():
            test.step(agent.call(torch.from_numpy(test.obs()))[0].argmax(1).numpy())
    score = float(np.mean(test.lengths[:40]))
    print(f"episode length: first 40 {first:.1f}, greedy policy {score:.1f}")
    f = lambda v: round(float(v), 4) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(losses[0]), "loss_last": f(np.mean(losses[-10:])), "metric_name": "episode_length",
                      "metric": f(score), "ok": bool(score > 150)}))


if __name__ == "__main__":
    main()
