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

from sklearn.datasets import load_digits
X, y = load_digits(return_X_y=True); X = torch.tensor(X / 16).float(); y = torch.tensor(y)
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)); model = build(net)
opt = torch.optim.SGD(net.parameters(), lr=0.4, momentum=0.9)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=75); ls = []
for s in range(300):
    i = torch.randint(0, 1797, (32,))
    loss = F.cross_entropy(model(X[i]), y[i])
    opt.zero_grad(); loss.backward(); opt.step(); sched.step(); ls.append(loss.item())
    if s % 50 == 0: print(s, ls[-1])
acc = (model(X).argmax(1) == y).float().mean().item()
report(ls, "accuracy", acc, acc > 0.95)
