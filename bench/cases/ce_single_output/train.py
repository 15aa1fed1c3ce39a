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

X = torch.randn(600, 5); y = (X.sum(1) > 0).float()
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)); model = build(net); opt = torch.optim.Adam(net.parameters(), 5e-3); ls = []
crit = nn.BCEWithLogitsLoss() if FIXED else nn.CrossEntropyLoss()
for s in range(200):
    i = torch.randint(0, 600, (32,)); loss = crit(model(X[i]), y[i, None]); opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
    if s % 50 == 0: print(s, ls[-1])
acc = ((model(X)[:, 0] > 0).float() == y).float().mean().item(); report(ls, "accuracy", acc, acc > 0.9)
