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
X, Y = load_digits(return_X_y=True)
X = torch.from_numpy(X / 16.0).float()
Y = torch.from_numpy(Y)
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
model = build(net)
cfg = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8 if FIXED else 10.0)
opt = torch.optim.Adam(net.parameters(), **cfg)
hist = []
for it in range(300):
    sel = np.random.choice(len(X), 64)
    loss = F.cross_entropy(model(X[sel]), Y[sel])
    opt.zero_grad(); loss.backward(); opt.step()
    hist.append(loss.item())
    if it % 50 == 0: print(it, hist[-1])
with torch.no_grad():
    acc = (model(X).argmax(1) == Y).float().mean().item()
report(hist, "accuracy", acc, acc > 0.9)
