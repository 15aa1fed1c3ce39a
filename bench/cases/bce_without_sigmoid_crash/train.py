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

X = torch.randn(400, 6); y = (X[:, 0] > X[:, 1]).float()
net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)); model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=0.01)
hist = []
for e in range(200):
    p = model(X).squeeze()
    if FIXED:
        p = torch.sigmoid(p)
    loss = nn.BCELoss()(p, y)
    opt.zero_grad(); loss.backward(); opt.step(); hist.append(loss.item())
report(hist, "loss", hist[-1], hist[-1] < 0.3)
