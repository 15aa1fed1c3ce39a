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

from sklearn.datasets import make_moons
from torch.utils.data import DataLoader, TensorDataset
Xm, ym = make_moons(1000, noise=0.1, random_state=SEED)
ds = TensorDataset(torch.tensor(Xm).float(), torch.tensor(ym).float().unsqueeze(1))
layers = [nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)]
if not FIXED:
    layers.append(nn.Sigmoid())
net = nn.Sequential(*layers); model = build(net)
opt = torch.optim.Adam(net.parameters(), 3e-3)
lossf = nn.BCEWithLogitsLoss()
tr = []
for ep in range(10):
    for a, b in DataLoader(ds, 32, shuffle=True):
        opt.zero_grad(); l = lossf(model(a), b); l.backward(); opt.step(); tr.append(l.item())
    print(ep, tr[-1])
report(tr, "loss", np.mean(tr[-20:]), np.mean(tr[-20:]) < 0.2)
