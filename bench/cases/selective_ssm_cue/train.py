"""Selective state-space classifier on long sensor streams: a short signature at the start, then unrelated drift, one label at the end."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
FIXED = os.environ.get("CASE_VARIANT", "faulty") == "fixed"
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

T, CHANNELS, KINDS = 34, 3, 4
signatures = np.random.default_rng(77).normal(size=(KINDS, 8, CHANNELS)) * 3.0


def batch(n):
    y = rng.integers(0, KINDS, n)
    x = 0.1 * rng.normal(size=(n, T, CHANNELS))
    t = np.arange(T)[None, :, None]
    drift = 0.2 * np.sin(2 * np.pi * t / rng.uniform(20, 60, (n, 1, CHANNELS)) + rng.uniform(0, 6, (n, 1, CHANNELS)))
    x += np.where(t >= 8, drift, 0)
    x[:, :8] += signatures[y]
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class Mixer(nn.Module):
    def __init__(self, d_model, expand=2, d_state=4, d_conv=3, dt_min=1e-2, dt_max=1e-1):
        super().__init__()
        d = expand * d_model
        self.d_state, self.dt_rank = d_state, max(1, d_model // 8)
        self.in_proj = nn.Linear(d_model, 2 * d, bias=False)
        self.conv1d = nn.Conv1d(d, d, d_conv, padding=d_conv - 1, groups=d)
        self.x_proj = nn.Linear(d, self.dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, d)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, d_state + 1).float()).repeat(d, 1))
        self.D = nn.Parameter(torch.ones(d))
        self.out_proj = nn.Linear(d, d_model, bias=False)
        dt = torch.exp(torch.rand(d) * (math.log(dt_max) - math.log(dt_min)) + math.log(dt_min))
        with torch.no_grad():
            self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))
        self.dt_proj.bias._no_reinit = True

    def forward(self, u):
        x, z = self.in_proj(u).chunk(2, dim=-1)
        x = F.silu(self.conv1d(x.transpose(1, 2))[..., :u.size(1)].transpose(1, 2))
        dt, B, C = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        dA = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.A_log))
        dBx = (dt * x).unsqueeze(-1) * B.unsqueeze(2)
        h, ys = torch.zeros_like(dBx[:, 0]), []
        for a, b, c in zip(dA.unbind(1), dBx.unbind(1), C.unbind(1)):
            h = a * h + b
            ys.append((h * c.unsqueeze(1)).sum(-1))
        y = torch.stack(ys, 1) + self.D * x
        return self.out_proj(y * F.silu(z))


class SSMClassifier(nn.Module):
    def __init__(self, d_model=24, n_layer=2):
        super().__init__()
        self.embed = nn.Linear(CHANNELS, d_model)
        self.layers = nn.ModuleList(Mixer(d_model) for _ in range(n_layer))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layer))
        self.norm_f = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, KINDS)
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            if m.bias is not None:
                if FIXED and getattr(m.bias, "_no_reinit", False):
                    return
                nn.init.zeros_(m.bias)

    def forward(self, x):
        x = self.embed(x)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(self.norm_f(x[:, -1]))


net = SSMClassifier()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
decay = [p for p in net.parameters() if p.ndim >= 2 and p.shape[-1] != 4]
rest = [p for p in net.parameters() if not (p.ndim >= 2 and p.shape[-1] != 4)]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}], lr=1e-2)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=400, pct_start=0.15)

losses = []
for it in range(400):
    x, y = batch(32)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    sched.step()
    losses.append(loss.item())
    if (it + 1) % 40 == 0:
        print(f"iter {it + 1:4d} loss {np.mean(losses[-40:]):.4f}")

net.eval()
with torch.no_grad():
    x, y = batch(600)
    acc = (model(x).argmax(1) == y).float().mean().item()
f = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": f(losses[0]), "loss_last": f(float(np.mean(losses[-10:]))), "metric_name": "test_accuracy",
                  "metric": acc, "ok": acc > 0.8}))
