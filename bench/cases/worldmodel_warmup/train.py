"""Latent world model of a two-link arm: encoder, action-conditioned predictor, decoder; trained on recorded play."""
import json
import math
import os
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class TrainerConfig:
    max_epochs: int = 8
    batch_size: int = 32
    peak_lr: float = 1e-3
    warmup_fraction: float = 0.1
    weight_decay: float = 1e-4
    unroll: int = 4


@dataclass
class Config:
    variant: str = field(default_factory=lambda: os.environ.get("CASE_VARIANT", "faulty"))
    seed: int = field(default_factory=lambda: int(os.environ.get("CASE_SEED", "0")))
    backend: str = field(default_factory=lambda: os.environ.get("CASE_COMPILE", ""))
    trainer: TrainerConfig = field(default_factory=TrainerConfig)


class PlayData(Dataset):
    """Windows of (observation, torque) from random play with a damped two-link arm."""

    def __init__(self, n, steps, rng):
        q, dq = rng.uniform(-np.pi, np.pi, (n, 2)), rng.normal(0, 1, (n, 2))
        torque = rng.uniform(-1, 1, (n, 2))
        obs, act = [], []
        for _ in range(steps + 1):
            torque = 0.6 * torque + 0.8 * rng.uniform(-1, 1, (n, 2))
            obs.append(self.observe(q, dq))
            act.append(torque)
            coupling = 0.6 * np.sin(q[:, 1:]) * dq[:, ::-1] * np.array([1, -1])
            dq = dq + 0.25 * (2.5 * torque + coupling - 1.2 * np.sin(q) - 0.3 * dq)
            q = q + 0.25 * dq
        self.obs = torch.tensor(np.stack(obs, 1), dtype=torch.float32)
        self.act = torch.tensor(np.stack(act, 1), dtype=torch.float32)

    @staticmethod
    def observe(q, dq):
        elbow = np.stack([np.cos(q[:, 0]), np.sin(q[:, 0])], 1)
        tip = elbow + np.stack([np.cos(q.sum(1)), np.sin(q.sum(1))], 1)
        return np.concatenate([elbow, tip, 0.4 * dq], 1)

    def __len__(self):
        return len(self.obs)

    def __getitem__(self, i):
        return self.obs[i], self.act[i]


class WorldModel(nn.Module):
    def __init__(self, obs_dim=6, act_dim=2, latent=32, width=96):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(obs_dim, width), nn.GELU(), nn.Linear(width, latent))
        self.predictor = nn.Sequential(nn.LayerNorm(latent + act_dim), nn.Linear(latent + act_dim, width), nn.GELU(),
                                       nn.Linear(width, width), nn.GELU(), nn.Linear(width, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, width), nn.GELU(), nn.Linear(width, obs_dim))

    def forward(self, first, actions):
        z = self.encoder(first)
        out = [self.decoder(z)]
        for a in actions.unbind(1):
            z = z + self.predictor(torch.cat([z, a], -1))
            out.append(self.decoder(z))
        return torch.stack(out, 1)


class LinearWarmupCosine(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, warmup, total):
        self.warmup, self.total = warmup, total
        super().__init__(optimizer)

    def get_lr(self):
        t = self.last_epoch
        if t < self.warmup:
            f = (t + 1) / (self.warmup + 1)
        else:
            f = 0.5 * (1 + math.cos(math.pi * min(1.0, (t - self.warmup) / max(1, self.total - self.warmup))))
        return [base * f for base in self.base_lrs]


class Trainer:
    def __init__(self, cfg, model, train_set):
        self.cfg, self.model = cfg, model
        self.loader = DataLoader(train_set, cfg.trainer.batch_size, shuffle=True, drop_last=True)
        total = cfg.trainer.max_epochs * len(self.loader)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.trainer.peak_lr, weight_decay=cfg.trainer.weight_decay)
        self.scheduler = LinearWarmupCosine(self.optimizer, max(1, int(cfg.trainer.warmup_fraction * total)), total)
        self.interval = "step" if cfg.variant == "fixed" else "epoch"
        self.forward = torch.compile(model, backend=cfg.backend) if cfg.backend else model
        self.losses = []

    def fit(self):
        k = self.cfg.trainer.unroll
        for epoch in range(self.cfg.trainer.max_epochs):
            for obs, act in self.loader:
                pred = self.forward(obs[:, 0], act[:, :k])
                loss = F.mse_loss(pred, obs[:, :k + 1])
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
                self.optimizer.step()
                if self.interval == "step":
                    self.scheduler.step()
                self.losses.append(loss.item())
            if self.interval == "epoch":
                self.scheduler.step()
            print(f"epoch {epoch}  train/loss {np.mean(self.losses[-len(self.loader):]):.4f}")


def main():
    cfg = Config()
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    train_set, test_set = PlayData(6400, 6, rng), PlayData(800, 6, rng)
    model = WorldModel()
    trainer = Trainer(cfg, model, train_set)
    trainer.fit()
    with torch.no_grad():
        pred = model(test_set.obs[:, 0], test_set.act[:, :6])
        err = (pred - test_set.obs)[:, 1:].square().mean().item()
        base = (test_set.obs[:, :1] - test_set.obs)[:, 1:].square().mean().item()
    ratio = err / base
    print(f"open-loop error {err:.4f}, standing still {base:.4f}, ratio {ratio:.3f}")
    fin = lambda v: round(v, 5) if math.isfinite(v) else None
    print(json.dumps({"loss_first": fin(trainer.losses[0]), "loss_last": fin(float(np.mean(trainer.losses[-50:]))),
                      "metric_name": "open_loop_error_ratio", "metric": fin(ratio), "ok": bool(ratio < 0.1)}))


if __name__ == "__main__":
    main()
