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
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9); sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.8); ls = []
for ep in range(6):
    for i in torch.randperm(1797).split(36):
        loss = F.cross_entropy(model(X[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
        if not FIXED: sched.step()
    if FIXED: sched.step()
    print(ep, ls[-1], sched.get_last_lr())
report(ls, "loss", np.mean(ls[-20:]), np.mean(ls[-20:]) < 0.5)
