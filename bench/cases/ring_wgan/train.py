"""WGAN with gradient penalty on eight Gaussian blobs; the generator is averaged (EMA) for sampling."""
import copy
import json
import math
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Opt:
    z: int = 8
    width: int = 96
    batch: int = 128
    n_critic: int = 4
    gp: float = 1.0
    iters: int = 900
    lr: float = 1e-3
    ema: float = 0.99
    seed: int = int(os.environ.get("CASE_SEED", "0"))
    backend: str = os.environ.get("CASE_COMPILE", "")


def ring(n, gen):
    k = torch.randint(0, 8, (n,), generator=gen)
    a = k * (2 * math.pi / 8)
    return torch.stack([a.cos(), a.sin()], 1) * 2 + 0.1 * torch.randn(n, 2, generator=gen)


def mlp(i, w, o):
    return nn.Sequential(nn.Linear(i, w), nn.LeakyReLU(0.2), nn.Linear(w, w), nn.LeakyReLU(0.2), nn.Linear(w, w),
                         nn.LeakyReLU(0.2), nn.Linear(w, o))


class Generator(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.body = mlp(o.z, o.width, 2)

    def forward(self, z):
        return 2 * self.body(z)


class Critic(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.body = mlp(2, o.width, 1)

    def forward(self, x):
        return self.body(x).squeeze(1)


def penalty(critic, real, fake):
    t = torch.rand(len(real), 1)
    mid = (t * real + (1 - t) * fake).requires_grad_(True)
    grad, = torch.autograd.grad(critic(mid).sum(), mid, create_graph=True)
    return ((grad.norm(dim=1) - 1) ** 2).mean()


@torch.no_grad()
def quality(gen_net, o):
    x = gen_net(torch.randn(2000, o.z))
    a = torch.arange(8) * (2 * math.pi / 8)
    d = torch.cdist(x, torch.stack([a.cos(), a.sin()], 1) * 2)
    near, who = d.min(1)
    good = near < 0.4
    share = torch.bincount(who[good], minlength=8) / len(x)
    return int((share > 0.03).sum()), good.float().mean().item()


def main(o):
    torch.set_num_threads(1)
    torch.manual_seed(o.seed)
    data = torch.Generator().manual_seed(o.seed + 5)
    g, c = Generator(o), Critic(o)
    avg = copy.deepcopy(g).requires_grad_(False)
    g_run = torch.compile(g, backend=o.backend) if o.backend else g
    opt_g = torch.optim.Adam(g.parameters(), lr=o.lr, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(c.parameters(), lr=o.lr, betas=(0.0, 0.9))
    sched = [torch.optim.lr_scheduler.LinearLR(q, 1.0, 0.05, o.iters) for q in (opt_g, opt_c)]
    hist = []
    for it in range(o.iters):
        for _ in range(o.n_critic):
            real = ring(o.batch, data)
            with torch.no_grad():
                fake = g_run(torch.randn(o.batch, o.z))
            loss_c = c(fake).mean() - c(real).mean() + o.gp * penalty(c, real, fake)
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        loss_g = -c(g_run(torch.randn(o.batch, o.z))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        for s in sched:
            s.step()
        with torch.no_grad():
            for pa, p in zip(avg.parameters(), g.parameters()):
                pa.lerp_(p, 1 - o.ema)
        hist.append((loss_c.item(), loss_g.item()))
        if it % 100 == 99:
            m, h = quality(avg, o)
            print(f"iter {it + 1} critic {hist[-1][0]:+.4f} generator {hist[-1][1]:+.4f} modes {m}/8 on target {h:.3f}")
    modes, hit = quality(avg, o)
    fin = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": fin(hist[0][1]), "loss_last": fin(np.mean([b for _, b in hist[-20:]])),
                      "metric_name": "share_on_target", "metric": fin(hit), "ok": bool(modes == 8 and hit > 0.5)}))


if __name__ == "__main__":
    main(Opt())
