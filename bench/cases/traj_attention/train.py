"""Crowd trajectories: for each walker predict the next displacement, steered by the nearest neighbour in the scene."""
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

AGENTS, DIM, HEADS = 8, 64, 2


def scenes(n):
    pos = torch.rand(n, AGENTS, 2) * 2 - 1
    group = torch.randint(0, 4, (n, AGENTS))
    vel = torch.randn(n, AGENTS, 2) * 0.5
    same = F.one_hot(group, 4).float()
    weight = same @ same.transpose(1, 2)
    target = weight @ vel / weight.sum(-1, keepdim=True)
    return torch.cat([pos, vel, same], -1), target


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim)
        if VARIANT == "fixed":
            self.q_norm = nn.RMSNorm(dim // heads)
            self.k_norm = nn.RMSNorm(dim // heads)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if VARIANT == "fixed":
            q, k = self.q_norm(q), self.k_norm(k)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(d // self.heads)
        return self.out((att.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn = SelfAttention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.ff(self.ln2(x))


class SocialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, DIM)
        self.layers = nn.Sequential(*[Layer(DIM, HEADS) for _ in range(3)])
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 2))

    def forward(self, x):
        return self.head(self.layers(self.embed(x)))


net = SocialTransformer()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.AdamW(net.parameters(), lr=5e-2, betas=(0.9, 0.95), weight_decay=0.0)
WARM, STEPS = 20, 220
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / WARM) * (0.5 + 0.5 * math.cos(math.pi * s / STEPS)))

log = []
for step in range(STEPS):
    x, y = scenes(32)
    loss = F.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    log.append(loss.item())
    if step % 40 == 0:
        print(f"step {step:4d} loss {loss.item():.5f}")

with torch.no_grad():
    x, y = scenes(400)
    r2 = 1 - (F.mse_loss(model(x), y) / y.var()).item()
num = lambda v: round(float(v), 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": num(log[0]), "loss_last": num(np.mean(log[-10:])), "metric_name": "r2", "metric": num(r2),
                  "ok": bool(r2 > 0.9)}))
