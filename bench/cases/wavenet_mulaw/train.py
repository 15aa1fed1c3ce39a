"""Autoregressive waveform model: mu-law samples, stacked dilated causal convolutions."""
import argparse
import json
import math
import os

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

FIXED = os.environ.get("CASE_VARIANT", "faulty") == "fixed"
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")

p = argparse.ArgumentParser()
p.add_argument("--batch_size", type=int, default=4)
p.add_argument("--sample_size", type=int, default=640)
p.add_argument("--num_steps", type=int, default=260)
p.add_argument("--learning_rate", type=float, default=2e-3 if FIXED else 0.25)
p.add_argument("--l2_regularization_strength", type=float, default=0.0)
args = p.parse_args([])

params = {"filter_width": 2, "dilations": [1, 2, 4, 8, 16, 32, 64], "residual_channels": 24,
          "dilation_channels": 24, "skip_channels": 64, "quantization_channels": 256, "sample_rate": 4000}

torch.set_num_threads(1)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)


def voice(seconds):
    """A gliding harmonic tone with slow loudness changes and a little breath noise."""
    sr = params["sample_rate"]
    t = np.arange(int(seconds * sr)) / sr
    f0 = 130 + 25 * np.sin(2 * np.pi * 0.7 * t + rng.uniform(0, 6))
    ph = 2 * np.pi * np.cumsum(f0) / sr
    x = sum(a * np.sin(k * ph) for k, a in ((1, 1.0), (2, 0.5), (3, 0.25)))
    x = x * (0.6 + 0.4 * np.sin(2 * np.pi * 0.4 * t))
    return (0.5 * x + 0.004 * rng.standard_normal(len(t))).clip(-1, 1)


def mu_law_encode(x, q):
    mu = q - 1
    y = np.sign(x) * np.log1p(mu * np.abs(x)) / np.log1p(mu)
    return ((y + 1) / 2 * mu + 0.5).astype(np.int64)


class CausalConv(nn.Conv1d):
    def __init__(self, cin, cout, width, dilation=1):
        super().__init__(cin, cout, width, dilation=dilation)
        self.left = (width - 1) * dilation

    def forward(self, x):
        return super().forward(F.pad(x, (self.left, 0)))


class Layer(nn.Module):
    def __init__(self, d, cfg):
        super().__init__()
        r, c, s, w = (cfg[k] for k in ("residual_channels", "dilation_channels", "skip_channels", "filter_width"))
        self.filter = CausalConv(r, c, w, d)
        self.gate = CausalConv(r, c, w, d)
        self.dense = nn.Conv1d(c, r, 1)
        self.skip = nn.Conv1d(c, s, 1)

    def forward(self, x):
        z = torch.tanh(self.filter(x)) * torch.sigmoid(self.gate(x))
        return x + self.dense(z), self.skip(z)


class WaveNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        q, s = cfg["quantization_channels"], cfg["skip_channels"]
        self.inp = nn.Embedding(q, cfg["residual_channels"])
        self.layers = nn.ModuleList(Layer(d, cfg) for d in cfg["dilations"])
        self.post1 = nn.Conv1d(s, s, 1)
        self.post2 = nn.Conv1d(s, q, 1)

    def forward(self, codes):
        x = self.inp(codes).transpose(1, 2)
        total = 0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.post2(F.relu(self.post1(F.relu(total))))


class AudioReader:
    def __init__(self, codes, size):
        self.codes, self.size = torch.from_numpy(codes), size

    def dequeue(self, n):
        at = torch.randint(0, len(self.codes) - self.size - 1, (n,)).tolist()
        return torch.stack([self.codes[a:a + self.size + 1] for a in at])


q = params["quantization_channels"]
train_reader = AudioReader(mu_law_encode(voice(20), q), args.sample_size)
test_reader = AudioReader(mu_law_encode(voice(4), q), args.sample_size)
net = WaveNet(params)
run = torch.compile(net, backend=BACKEND) if BACKEND else net
optim = torch.optim.Adam(net.parameters(), lr=args.learning_rate)

history = []
for step in range(args.num_steps):
    batch = train_reader.dequeue(args.batch_size)
    loss = F.cross_entropy(run(batch[:, :-1]), batch[:, 1:])
    if args.l2_regularization_strength:
        loss = loss + args.l2_regularization_strength * sum(w.pow(2).sum() for w in net.parameters())
    optim.zero_grad()
    loss.backward()
    optim.step()
    history.append(loss.item())
    if step % 20 == 0:
        print(f"step {step} - loss = {history[-1]:.3f}")

with torch.no_grad():
    held = torch.cat([test_reader.dequeue(args.batch_size) for _ in range(3)])
    nll = F.cross_entropy(run(held[:, :-1]), held[:, 1:]).item()
ok = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": ok(history[0]), "loss_last": ok(history[-1]), "metric_name": "test_nll_per_sample",
                  "metric": ok(nll), "ok": bool(nll < 3.6)}))
