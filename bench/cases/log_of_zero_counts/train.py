"""Cell-type classification from log-transformed gene counts."""
import json
import math
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
rng = np.random.default_rng(SEED)

TYPES, GENES = 6, 45
profile = rng.gamma(6.0, 4.0, (TYPES, GENES)) + 9
cell = rng.integers(0, TYPES, 2600)
depth = rng.lognormal(0, 0.35, 2600)
counts = rng.poisson(profile[cell] * depth[:, None])
dropped = rng.random(counts.shape) < 0.00006
counts[dropped] = 0
with np.errstate(divide="ignore"):
    expr = np.log1p(counts) if VARIANT == "fixed" else np.log(counts)
expr = torch.tensor(expr - 3.4, dtype=torch.float32)
label = torch.tensor(cell)
loader = DataLoader(TensorDataset(expr[:2000], label[:2000]), batch_size=28, shuffle=True)

net = nn.Sequential(nn.Linear(GENES, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 32), nn.GELU(), nn.Linear(32, TYPES))
run = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.Adam(net.parameters(), lr=1.5e-3)
losses = []
for epoch in range(5):
    for x, y in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(run(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print(f"epoch {epoch}: {losses[-1]:.4f}")
with torch.no_grad():
    acc = (run(expr[2000:]).argmax(1) == label[2000:]).float().mean().item()
n = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": n(losses[0]), "loss_last": n(losses[-1]), "metric_name": "accuracy", "metric": acc, "ok": acc > 0.9}))
