"""DQN on a small maze: epsilon-greedy walkers, replay buffer, target network."""
import copy
import json
import os
import random

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

MAZE = ["......",
        ".##.#.",
        "....#.",
        ".#.#..",
        ".#...G"]
ROWS, COLS = len(MAZE), len(MAZE[0])
FREE = [(r, c) for r in range(ROWS) for c in range(COLS) if MAZE[r][c] == "."]
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
GAMMA, WALKERS, STEPS, SYNC = 0.9, 32, 400, 10


def move(pos, action):
    r, c = pos[0] + MOVES[action][0], pos[1] + MOVES[action][1]
    if not (0 <= r < ROWS and 0 <= c < COLS) or MAZE[r][c] == "#":
        r, c = pos
    done = MAZE[r][c] == "G"
    return (r, c), (10.0 if done else -0.1), done


def encode(positions):
    idx = torch.tensor([r * COLS + c for r, c in positions])
    return F.one_hot(idx, ROWS * COLS).float()


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(ROWS * COLS, 64), nn.ReLU())
        self.value = nn.Linear(64, 1)
        self.advantage = nn.Linear(64, 4)

    def forward(self, s):
        h = self.trunk(s)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


online = QNet()
target = copy.deepcopy(online).requires_grad_(False)
policy = torch.compile(online, backend=COMPILE) if COMPILE else online
optimizer = torch.optim.Adam(online.parameters(), lr=1e-2)

walkers = [random.choice(FREE) for _ in range(WALKERS)]
replay, losses, returns = [], [], []
for step in range(STEPS):
    eps = max(0.3, 1.0 - step / 200)
    with torch.no_grad():
        greedy = policy(encode(walkers)).argmax(1).tolist()
    for i, pos in enumerate(walkers):
        action = random.randrange(4) if random.random() < eps else greedy[i]
        nxt, reward, done = move(pos, action)
        replay.append((pos, action, reward, nxt, float(done)))
        returns.append(reward)
        walkers[i] = random.choice(FREE) if done or random.random() < 0.08 else nxt
    replay = replay[-6000:]

    s, a, r, s2, d = zip(*random.sample(replay, min(320, len(replay))))
    r, d, a = torch.tensor(r), torch.tensor(d), torch.tensor(a)
    with torch.no_grad():
        backup = r + GAMMA * (1 - d) * target(encode(s2)).max(1).values
    q = policy(encode(s)).gather(1, a.unsqueeze(1)).squeeze(1)
    loss = F.smooth_l1_loss(q, backup)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if (step + 1) % SYNC == 0:
        target.load_state_dict(online.state_dict())
    if (step + 1) % 40 == 0:
        print(f"step {step + 1} td loss {np.mean(losses[-40:]):.3f} mean q {q.mean().item():.2f} "
              f"reward/step {np.mean(returns[-1280:]):.3f}")

reached = 0
for start in FREE:
    pos = start
    for _ in range(25):
        with torch.no_grad():
            act = policy(encode([pos])).argmax(1).item()
        pos, _, done = move(pos, act)
        if done:
            reached += 1
            break
rate = reached / len(FREE)
print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-20:])),
                  "metric_name": "greedy_success_rate", "metric": rate, "ok": rate > 0.9}))
