import json
import os
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)


class Corridors:
    """Batch of 1-d corridors. A cue at the start tells which end pays; each step costs a little."""

    def __init__(self, n, half=4, limit=12, seed=0):
        self.n, self.half, self.limit = n, half, limit
        self.g = torch.Generator().manual_seed(seed)
        self.goal = torch.zeros(n)
        self.pos = torch.zeros(n)
        self.t = torch.zeros(n)
        self.begin(torch.ones(n, dtype=torch.bool))

    def begin(self, mask):
        k = int(mask.sum())
        self.goal[mask] = (torch.randint(0, 2, (k,), generator=self.g) * 2 - 1).float()
        self.pos[mask] = torch.randint(-1, 2, (k,), generator=self.g).float()
        self.t[mask] = 0

    def observe(self):
        onehot = nn.functional.one_hot((self.pos + self.half).long().clamp(0, 2 * self.half), 2 * self.half + 1).float()
        return torch.cat([onehot, self.goal[:, None], self.t[:, None] / self.limit], 1)

    def step(self, action):
        self.pos += action.float() - 1
        self.t += 1
        at_end = self.pos.abs() >= self.half
        right = at_end & (self.pos.sign() == self.goal)
        reward = torch.where(right, 1.0, torch.where(at_end, -1.0, -0.02))
        done = at_end | (self.t >= self.limit)
        self.begin(done)
        return reward, done, right


class ActorCritic(nn.Module):
    def __init__(self, obs, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.pi = nn.Linear(48, actions)
        self.v = nn.Linear(48, 1)
        nn.init.zeros_(self.pi.weight)
        nn.init.zeros_(self.pi.bias)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


def gae(rewards, values, dones, last, gamma=0.98, lam=0.9):
    adv, run = torch.zeros_like(rewards), torch.zeros_like(last)
    nxt = last
    for t in reversed(range(len(rewards))):
        live = 1 - dones[t].float()
        delta = rewards[t] + gamma * nxt * live - values[t]
        run = delta + gamma * lam * live * run
        adv[t] = run
        nxt = values[t]
    return adv


envs = Corridors(32, seed=SEED)
net = ActorCritic(envs.observe().shape[1], 3)
model = torch.compile(net, backend=COMPILE) if COMPILE else net
opt = torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.99, eps=1e-5)
history, wins, ends = [], [], []
for update in range(220):
    obs, acts, rews, dones, vals = [], [], [], [], []
    for _ in range(10):
        o = envs.observe()
        with torch.no_grad():
            logits, v = model(o)
        a = Categorical(logits=logits).sample()
        r, d, right = envs.step(a)
        for store, item in zip((obs, acts, rews, dones, vals), (o, a, r, d, v)):
            store.append(item)
        wins.append(right.sum().item())
        ends.append(d.sum().item())
    with torch.no_grad():
        _, last = model(envs.observe())
    rews, dones, vals = torch.stack(rews), torch.stack(dones), torch.stack(vals)
    adv = gae(rews, vals, dones, last)
    target = (adv + vals).flatten()
    norm_adv = ((adv - adv.mean()) / (adv.std() + 1e-6)).flatten()
    logits, v = model(torch.cat(obs))
    dist = Categorical(logits=logits)
    actor = -(dist.log_prob(torch.cat(acts)) * norm_adv).mean()
    critic = (v - target).pow(2).mean()
    entropy = dist.entropy().mean()
    loss = actor + 0.25 * critic - 0.01 * entropy
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    history.append(loss.item())
    if update % 30 == 0:
        print(f"update {update} loss {loss.item():+.4f} entropy {entropy.item():.3f} success {sum(wins[-100:]) / max(1, sum(ends[-100:])):.3f}")

success = sum(wins[-150:]) / max(1, sum(ends[-150:]))
print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])), "metric_name": "success_rate", "metric": success, "ok": success > 0.9}))
