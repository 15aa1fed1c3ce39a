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

w = torch.randn(4); net = nn.Linear(4, 1); model = build(net); opt = torch.optim.SGD(net.parameters(), lr=0.05); ls = []
for s in range(300):
    x = torch.randn(64, 4); t = x @ w + 1.0 * torch.randn(64)
    loss = ((model(x).squeeze(1) - t) ** 2).mean(); opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
gap = (net.weight[0] - w).norm().item()
report(ls, "weight_error", gap, gap < 0.2)
