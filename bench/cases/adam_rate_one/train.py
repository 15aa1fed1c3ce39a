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
d = load_digits(); X = torch.tensor(d.images[:, None] / 16).float(); y = torch.tensor(d.target)
net = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(384, 10)); model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=3e-3 if FIXED else 0.3); ls = []
for s in range(200):
    i = torch.randint(0, 1797, (32,)); loss = F.cross_entropy(model(X[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
    if s % 40 == 0: print(s, ls[-1])
report(ls, "loss", np.mean(ls[-20:]), np.mean(ls[-20:]) < 0.5)
