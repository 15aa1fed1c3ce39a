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
d = load_wine(); X = torch.tensor((d.data - d.data.mean(0)) / d.data.std(0)).float(); y = torch.tensor(d.target)
net = nn.Sequential(nn.Linear(13, 20), nn.ReLU(), nn.Linear(20, 3), nn.LogSoftmax(dim=1)); model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=0.01); ls = []
for e in range(150):
    loss = F.cross_entropy(model(X), y)
    opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
report(ls, "loss", ls[-1], ls[-1] < 0.1)
