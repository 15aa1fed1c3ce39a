import json
import os

import numpy as np
import torch
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
np.random.seed(SEED)
torch.manual_seed(SEED)

LOOKBACK, HORIZON, N_TARGETS, N_COV = 48, 12, 2, 4


def simulate(n_hours, rng):
    """Two coupled series (load, temperature) with daily and half-daily cycles."""
    t = np.arange(n_hours)
    ph = rng.uniform(0, 2 * np.pi, 2)
    temp = np.sin(2 * np.pi * t / 24 + ph[0]) + 0.4 * np.sin(2 * np.pi * t / 160)
    load = 0.8 * np.roll(temp, 3) + 0.5 * np.sin(2 * np.pi * t / 12 + ph[1])
    y = np.stack([load, temp], -1) + rng.normal(0, 0.12, (n_hours, 2))
    cov = np.stack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24),
                    np.sin(2 * np.pi * t / 12), np.cos(2 * np.pi * t / 12)], -1)
    y = (y - y.mean(0)) / y.std(0)
    return torch.tensor(y, dtype=torch.float32), torch.tensor(cov, dtype=torch.float32)


class ResBlock(nn.Module):
    def __init__(self, d_in, d_out, d_hidden=64, p=0.05, norm=True):
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(d_in, d_hidden), nn.ReLU(), nn.Linear(d_hidden, d_out), nn.Dropout(p))
        self.skip = nn.Linear(d_in, d_out)
        self.norm = nn.LayerNorm(d_out) if norm else nn.Identity()

    def forward(self, x):
        return self.norm(self.dense(x) + self.skip(x))


class TiDE(nn.Module):
    def __init__(self, d_model=64, d_cov=2, d_dec=8):
        super().__init__()
        self.cov_proj = ResBlock(N_COV, d_cov, 16)
        d_in = LOOKBACK * N_TARGETS + (LOOKBACK + HORIZON) * d_cov
        self.encoder = nn.Sequential(ResBlock(d_in, d_model), ResBlock(d_model, d_model))
        self.decoder = nn.Sequential(ResBlock(d_model, d_model), ResBlock(d_model, HORIZON * d_dec * N_TARGETS))
        self.temporal = ResBlock(d_dec + d_cov, 1, 16, norm=False)
        self.lookback_skip = nn.Linear(LOOKBACK, HORIZON)
        self.d_dec = d_dec

    def forward(self, past, cov):
        b = past.shape[0]
        c = self.cov_proj(cov)
        z = self.encoder(torch.cat([past.flatten(1), c.flatten(1)], 1))
        g = self.decoder(z).view(b, N_TARGETS, HORIZON, self.d_dec)
        fut = c[:, LOOKBACK:].unsqueeze(1).expand(-1, N_TARGETS, -1, -1)
        out = self.temporal(torch.cat([g, fut], -1)).squeeze(-1)
        return out + self.lookback_skip(past.transpose(1, 2))


class MultiTargetForecaster:
    """Small trainer: one loss per target, summed."""

    def __init__(self, net, losses, lr=2e-3):
        self.net = net
        self.fwd = torch.compile(net, backend=COMPILE) if COMPILE else net
        self.losses = losses
        self.opt = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=1e-4)

    def predict(self, past, cov):
        out = self.fwd(past, cov)
        prediction = [out[:, i] for i in range(N_TARGETS)]
        if VARIANT == "fixed":
            prediction = [p.clone() for p in prediction]
        else:
            prediction = [p.clone().detach().requires_grad_(True) for p in prediction]
        return prediction

    def training_step(self, past, cov, future):
        self.net.train()
        preds = self.predict(past, cov)
        loss = sum(fn(p, future[..., i]) for i, (fn, p) in enumerate(zip(self.losses, preds)))
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
        return loss.item()


def window_batch(y, cov, starts):
    past = torch.stack([y[s:s + LOOKBACK] for s in starts])
    fut = torch.stack([y[s + LOOKBACK:s + LOOKBACK + HORIZON] for s in starts])
    c = torch.stack([cov[s:s + LOOKBACK + HORIZON] for s in starts])
    return past, c, fut


rng = np.random.default_rng(SEED + 7)
y, cov = simulate(2400, rng)
split = 1900
trainer = MultiTargetForecaster(TiDE(), [nn.MSELoss(), nn.SmoothL1Loss()])
hist = []
for it in range(300):
    starts = rng.integers(0, split - LOOKBACK - HORIZON, 32)
    hist.append(trainer.training_step(*window_batch(y, cov, starts)))
    if it % 50 == 0:
        print(f"iter {it} multi-target loss {hist[-1]:.4f}")

trainer.net.eval()
past, c, fut = window_batch(y, cov, range(split, 2400 - LOOKBACK - HORIZON, 3))
with torch.no_grad():
    pred = torch.stack([p.detach() for p in trainer.predict(past, c)], -1)
mae = (pred - fut).abs().mean().item()
naive = (past[:, -24:-12] - fut).abs().mean().item()
print(f"test MAE {mae:.3f}  seasonal naive {naive:.3f}")
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-10:])),
                  "metric_name": "mae_over_seasonal_naive", "metric": mae / naive, "ok": mae < naive}))
