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

w = torch.randn(5)


def file(n, unit):
    x = torch.randn(n, 5)
    return x * unit, (x @ w + 0.05 * torch.randn(n))


first, second = file(4800, 1.0), file(4800, 1.0 if FIXED else 40.0)
net = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 1))
model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
hist = []
for xs, ys in (first, second):
    for k in range(0, len(xs), 32):
        loss = F.mse_loss(model(xs[k:k + 32])[:, 0], ys[k:k + 32])
        opt.zero_grad(); loss.backward(); opt.step()
        hist.append(loss.item())
    print("file done", hist[-1])
report(hist, "late_loss", np.mean(hist[-20:]), np.mean(hist[-20:]) < 0.5)
