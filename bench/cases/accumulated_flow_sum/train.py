"""Optical-flow-like regression: estimate the shift between two noisy patches at every pixel."""
import json
import math
import os

import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
S, BATCH = 18, 30


def pairs(n):
    wide = torch.randn(n, 1, S + 8, S + 8)
    wide = nn.functional.avg_pool2d(wide, 5, 1, 2) * 4
    dx = torch.randint(-1, 2, (n,))
    a = wide[:, :, 4:-4, 4:-4]
    b = torch.stack([w[:, 4:-4, 4 + int(d):S + 4 + int(d)] for w, d in zip(wide, dx)])
    flow = dx.float()[:, None, None, None].expand(-1, 1, S, S)
    return torch.cat([a, b], 1), flow


def endpoint_error(pred, flow):
    err = ((pred - flow) ** 2 + 1e-3).sqrt()
    return err.mean() if VARIANT == "fixed" else err.sum()


net = nn.Sequential(nn.Conv2d(2, 20, 5, padding=2), nn.LeakyReLU(0.1), nn.Conv2d(20, 20, 5, padding=2), nn.LeakyReLU(0.1),
                    nn.Conv2d(20, 1, 5, padding=2))
run = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
losses = []
for it in range(220):
    x, flow = pairs(BATCH)
    loss = endpoint_error(run(x), flow)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if it % 40 == 0:
        print(f"it {it} loss {loss.item():.4f}")
with torch.no_grad():
    x, flow = pairs(100)
    epe = (run(x) - flow).abs().mean().item()
n = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": n(losses[0]), "loss_last": n(sum(losses[-10:]) / 10), "metric_name": "endpoint_error", "metric": n(epe),
                  "ok": bool(math.isfinite(epe) and epe < 0.35)}))
