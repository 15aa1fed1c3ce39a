"""Short-horizon electricity load forecaster. Windows are drawn from many meters of very different size."""
import json
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)

CTX, HOR = 48, 12


def make_meters(n_meters=60, length=480):
    t = np.arange(length)
    out = []
    for _ in range(n_meters):
        base = np.exp(np.random.uniform(1.0, 5.0))
        day = 0.35 * np.sin(2 * np.pi * t / 24 + np.random.uniform(0, 6.28))
        half = 0.15 * np.sin(2 * np.pi * t / 12 + np.random.uniform(0, 6.28))
        drift = np.cumsum(np.random.randn(length)) * 0.01
        out.append(base * (1 + day + half + drift + 0.03 * np.random.randn(length)))
    return np.stack(out).astype(np.float32)


class Windows:
    def __init__(self, series, lo, hi):
        self.series, self.lo, self.hi = torch.from_numpy(series), lo, hi

    def sample(self, n):
        m = torch.randint(0, self.series.shape[0], (n,))
        s = torch.randint(self.lo, self.hi - CTX - HOR, (n,))
        idx = s[:, None] + torch.arange(CTX + HOR)
        w = self.series[m[:, None], idx]
        return w[:, :CTX], w[:, CTX:]


class TCNBlock(nn.Module):
    def __init__(self, ch, dil):
        super().__init__()
        self.dil = dil
        self.conv = nn.Conv1d(ch, ch, 3, dilation=dil)
        self.mix = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        h = F.gelu(self.conv(F.pad(x, (2 * self.dil, 0))))
        return x + self.mix(h)


class Net(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.inp = nn.Conv1d(1, ch, 1)
        self.blocks = nn.ModuleList([TCNBlock(ch, d) for d in (1, 2, 4, 8, 16)])
        self.out = nn.Linear(2 * ch, HOR)

    def forward(self, x):
        h = self.inp(x.unsqueeze(1))
        for b in self.blocks:
            h = b(h)
        return self.out(torch.cat([h[..., -1], h[..., -24]], -1))


def stats(ctx):
    return ctx.mean(1, keepdim=True), ctx.std(1, keepdim=True) + 1e-4


class Forecaster:
    def __init__(self, net):
        self.net = torch.compile(net, backend=COMPILE) if COMPILE else net
        self.opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-3)

    def fit_step(self, ctx, fut):
        mu, sd = stats(ctx)
        pred = self.net((ctx - mu) / sd)
        loss = F.smooth_l1_loss(pred, (fut - mu) / sd)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def forecast(self, ctx):
        self.net.eval()
        if VARIANT == "fixed":
            mu, sd = stats(ctx)
            y = self.net((ctx - mu) / sd) * sd + mu
        else:
            y = self.net(ctx)
        self.net.train()
        return y


def wape(pred, true):
    return ((pred - true).abs().sum(1) / true.abs().sum(1)).mean().item()


data = make_meters()
train, test = Windows(data, 0, 360), Windows(data, 360, 480)
fc = Forecaster(Net())
losses = []
for step in range(260):
    losses.append(fc.fit_step(*train.sample(64)))
    if step % 40 == 0:
        c, f = test.sample(128)
        print(f"step {step:4d} loss {losses[-1]:.4f} test WAPE {wape(fc.forecast(c), f):.3f}")

c, f = test.sample(512)
err = wape(fc.forecast(c), f)
naive = wape(c[:, -24:-24 + HOR], f)
print(f"final WAPE {err:.3f}, seasonal naive {naive:.3f}")
print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-20:])), "metric_name": "test_wape",
                  "metric": err, "ok": bool(err < 0.10)}))
