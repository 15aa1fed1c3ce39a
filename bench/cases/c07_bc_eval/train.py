"""Behaviour cloning of a reaching controller from logged robot states."""
import json
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Cfg:
    steps: int = 300
    batch: int = 64
    lr: float = 2e-3
    eval_every: int = 100
    hidden: int = 64


CFG = Cfg()
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)
gen = np.random.default_rng(SEED)
# joint angles [deg], encoder ticks, motor current [mA], gripper pixel coordinates
SCALE = np.array([40, 40, 40, 900, 900, 250, 120, 90], dtype=np.float32)
OFFSET = np.array([0, 20, -30, 2000, 1500, 400, 320, 240], dtype=np.float32)
W1 = np.random.default_rng(5).normal(size=(8, 10)).astype(np.float32) / 2.8
W2 = np.random.default_rng(6).normal(size=(10, 3)).astype(np.float32) / 3.2


def expert(z):
    return np.tanh(np.sin(1.5 * z @ W1) @ W2 * 1.5)


def dataset(n):
    z = gen.normal(size=(n, 8)).astype(np.float32)
    return torch.from_numpy(z * SCALE + OFFSET), torch.from_numpy(expert(z)).float()


class Policy(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.input_norm = nn.BatchNorm1d(8)
        self.net = nn.Sequential()
        width = 8
        for k in range(2):
            self.net.append(nn.Linear(width, h))
            self.net.append(nn.BatchNorm1d(h))
            self.net.append(nn.ReLU())
            width = h
        self.action = nn.Linear(h, 3)

    def forward(self, obs):
        return self.action(self.net(self.input_norm(obs)))

    @torch.no_grad()
    def select_action(self, obs):
        return self(obs).clamp(-1, 1)


def eval_policy(policy, obs, act):
    policy.eval()
    pred = policy.select_action(obs)
    err = ((pred - act) ** 2).mean(0)
    score = (1 - err / act.var(0)).mean().item()
    if VARIANT == "fixed":
        policy.train()
    return score


def main():
    obs, act = dataset(6000)
    val_obs, val_act = dataset(800)
    policy = Policy(CFG.hidden)
    forward = torch.compile(policy, backend=COMPILE) if COMPILE else policy
    opt = torch.optim.AdamW(policy.parameters(), lr=CFG.lr, weight_decay=1e-4)
    policy.train()
    print("initial score", round(eval_policy(policy, val_obs, val_act), 3))
    logs = []
    for step in range(1, CFG.steps + 1):
        idx = torch.randint(len(obs), (CFG.batch,))
        loss = nn.functional.mse_loss(forward(obs[idx]), act[idx])
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        opt.step()
        logs.append(loss.item())
        if step % CFG.eval_every == 0:
            score = eval_policy(policy, val_obs, val_act)
            print(f"step {step} loss {np.mean(logs[-50:]):.4f} r2 {score:.3f}")
    print(json.dumps({"loss_first": logs[0], "loss_last": logs[-1], "metric_name": "val_r2", "metric": score, "ok": score > 0.6}))


if __name__ == "__main__":
    main()
