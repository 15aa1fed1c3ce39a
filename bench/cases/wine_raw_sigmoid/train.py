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

from sklearn.datasets import load_wine
d = load_wine(); X = torch.tensor(d.data).float(); y = torch.tensor(d.target)
if FIXED: X = (X - X.mean(0)) / X.std(0)
net = nn.Sequential(nn.Linear(13, 32), nn.Sigmoid(), nn.Linear(32, 3)); model = build(net); opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9); ls = []
for ep in range(250):
    i = torch.randint(0, len(X), (32,)); loss = F.cross_entropy(model(X[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
    if ep % 50 == 0: print(ep, ls[-1])
acc = (model(X).argmax(1) == y).float().mean().item(); report(ls, "accuracy", acc, acc > 0.9)
