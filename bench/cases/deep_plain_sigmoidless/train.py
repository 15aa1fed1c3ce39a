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

DEPTH = 20


def layer(i, o):
    return [nn.Linear(i, o), nn.LayerNorm(o), nn.ReLU()] if FIXED else [nn.Linear(i, o), nn.ReLU()]


from sklearn.datasets import load_digits
d = load_digits()
X = torch.tensor((d.data - 4.9) / 6).float(); y = torch.tensor(d.target)
mods = layer(64, 32)
for _ in range(DEPTH):
    mods += layer(32, 32)
net = nn.Sequential(*mods, nn.Linear(32, 10))
model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
hist = []
for it in range(350):
    j = torch.randint(0, 1797, (64,))
    opt.zero_grad()
    loss = F.cross_entropy(model(X[j]), y[j])
    loss.backward(); opt.step()
    hist.append(loss.item())
    if it % 50 == 0: print(it, hist[-1])
report(hist, "loss", np.mean(hist[-20:]), np.mean(hist[-20:]) < 1.6)
