import json, math, os, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
FIXED = VARIANT == "fixed"
torch.set_num_threads(1)
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)


def build(net):
    return torch.compile(net, backend=COMPILE) if COMPILE else net


def report(losses, name, value, ok):
    num = lambda v: round(float(v), 5) if math.isfinite(v) else None
    print(json.dumps({"loss_first": num(losses[0]), "loss_last": num(float(np.mean(losses[-10:]))),
                      "metric_name": name, "metric": num(value), "ok": bool(ok)}))

N = 2400
feats = torch.randn(N, 6)
coef = torch.randn(6)
target = feats @ coef + 0.1 * torch.randn(N)
bad = torch.randperm(N)[:8]
feats[bad, 2] = 3.0e4
if FIXED:
    keep = feats.abs().max(1).values < 1e3
    feats, target = feats[keep], target[keep]
mlp = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
model = build(mlp)
opt = torch.optim.SGD(mlp.parameters(), lr=0.02, momentum=0.9)
order, losses = torch.randperm(len(feats)), []
for epoch in range(4):
    for k in range(0, len(feats) - 31, 32):
        rows = order[k:k + 32]
        err = model(feats[rows]).flatten() - target[rows]
        loss = err.abs().mean() if False else F.smooth_l1_loss(err, torch.zeros_like(err))
        opt.zero_grad(); loss.backward(); opt.step()
        losses.append(loss.item())
    print("epoch", epoch, losses[-1])
report(losses, "median_loss", np.median(losses[-30:]), np.median(losses[-30:]) < 0.1)
