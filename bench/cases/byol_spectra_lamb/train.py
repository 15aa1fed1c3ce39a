"""Self-distillation on unlabelled spectra, each specimen measured twice: online network, predictor, slowly moving target network."""
import copy
import json
import math
import os
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch.optim import Optimizer


@dataclass
class Config:
    seed: int = int(os.environ.get("CASE_SEED", "0"))
    backend: str = os.environ.get("CASE_COMPILE", "")
    length: int = 128
    classes: int = 8
    batch: int = 192
    steps: int = 140
    warmup: int = 20
    lr: float = 0.02
    wd: float = 1e-4
    tau: float = 0.9


class Lamb(Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["t"], st["m"], st["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                st["t"] += 1
                st["m"].lerp_(p.grad, 1 - b1)
                st["v"].lerp_(p.grad ** 2, 1 - b2)
                r = (st["m"] / (1 - b1 ** st["t"])) / ((st["v"] / (1 - b2 ** st["t"])).sqrt() + g["eps"])
                trust = 1.0
                if p.ndim > 1:
                    r = r + g["weight_decay"] * p
                    trust = (p.norm() / (r.norm() + 1e-9)).clamp(max=10.0)
                p.sub_(g["lr"] * trust * r)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h, bias=False), nn.BatchNorm1d(h), nn.ReLU(inplace=True), nn.Linear(h, o))


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        c = lambda i, o, s: nn.Sequential(nn.Conv1d(i, o, 7, s, 3, bias=False), nn.BatchNorm1d(o), nn.ReLU(inplace=True))
        self.trunk = nn.Sequential(c(1, 24, 2), c(24, 32, 2), c(32, 48, 2))
        self.projector = mlp(48 * 8, 128, 32)

    def features(self, x):
        return F.adaptive_avg_pool1d(self.trunk(x.unsqueeze(1)), 8).flatten(1)

    def forward(self, x):
        return self.projector(self.features(x))


class Byol(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Branch()
        self.predictor = mlp(32, 64, 32)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, a, b):
        qa, qb = self.predictor(self.online(a)), self.predictor(self.online(b))
        with torch.no_grad():
            za, zb = self.target(a), self.target(b)
        return (2 - F.cosine_similarity(qa, zb, dim=1) - F.cosine_similarity(qb, za, dim=1)).mean()

    @torch.no_grad()
    def follow(self, tau):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.mul_(tau).add_(o, alpha=1 - tau)


class Spectra:
    def __init__(self, cfg, rng):
        self.n, self.grid = cfg.length, np.arange(cfg.length)
        self.peaks = [(rng.uniform(15, cfg.length - 15, 4), rng.uniform(0.5, 1.3, 4), rng.uniform(1.5, 4.0, 4)) for _ in range(cfg.classes)]

    def draw(self, rng, m, repeats=1):
        y = rng.integers(0, len(self.peaks), m)
        x = np.zeros((m, repeats, self.n), np.float32)
        for k, c in enumerate(y):
            pos, amp, wid = self.peaks[c]
            amp = amp * rng.uniform(0.7, 1.3, 4)
            for r in range(repeats):
                base = rng.normal() * 1.2 * np.sin(self.grid / self.n * rng.uniform(2, 6) + rng.uniform(0, 6))
                bell = np.exp(-0.5 * ((self.grid - pos[:, None] - rng.normal() * 1.5) / wid[:, None]) ** 2)
                x[k, r] = base + (amp[:, None] * bell).sum(0)
        return torch.from_numpy(x + rng.normal(size=x.shape).astype(np.float32) * 0.12).squeeze(1), y


def jitter(x):
    n, L = x.shape
    x = x * (0.8 + 0.4 * torch.rand(n, 1)) + 0.05 * torch.randn_like(x)
    s = torch.randint(-2, 3, (n, 1))
    return x.gather(1, (torch.arange(L) + s).clamp(0, L - 1))


def probe(branch, xs, ys, xt, yt):
    branch.eval()
    with torch.no_grad():
        a, b = branch.features(xs).numpy(), branch.features(xt).numpy()
    branch.train()
    m, s = a.mean(0), a.std(0) + 1e-6
    return LogisticRegression(max_iter=400).fit((a - m) / s, ys).score((b - m) / s, yt)


def run(cfg):
    torch.set_num_threads(1)
    random.seed(cfg.seed)
    np.random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    src = Spectra(cfg, rng)
    pool, _ = src.draw(rng, 3000, repeats=2)
    few = [src.draw(rng, 48), src.draw(rng, 1500)]
    net = Byol()
    before = probe(net.online, few[0][0], few[0][1], *few[1])
    step_fn = torch.compile(net, backend=cfg.backend) if cfg.backend else net
    opt = Lamb([p for p in net.parameters() if p.requires_grad], lr=cfg.lr, weight_decay=cfg.wd)
    shape = lambda s: min(1.0, (s + 1) / cfg.warmup) * 0.5 * (1 + math.cos(math.pi * s / cfg.steps))
    sched = torch.optim.lr_scheduler.LambdaLR(opt, shape)
    trace = []
    for s in range(cfg.steps):
        x = pool[torch.randint(0, len(pool), (cfg.batch,))]
        loss = step_fn(jitter(x[:, 0]), jitter(x[:, 1]))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        net.follow(1 - (1 - cfg.tau) * (1 + math.cos(math.pi * s / cfg.steps)) / 2)
        trace.append(loss.item())
        if s % 20 == 0 or s == cfg.steps - 1:
            print(f"[{s:3d}] loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.5f}")
    after = probe(net.online, few[0][0], few[0][1], *few[1])
    print(f"probe on 48 labels: untrained {before:.4f} -> trained {after:.4f}")
    f = lambda v: round(float(v), 4) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(trace[0]), "loss_last": f(np.mean(trace[-10:])), "metric_name": "probe_accuracy",
                      "metric": f(after), "ok": bool(after > 0.85 and after > before + 0.08)}))


if __name__ == "__main__":
    run(Config())
