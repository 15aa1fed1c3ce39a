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


def weights_init(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight, 0.0, 1e-3)
        nn.init.zeros_(m.bias)


data, lab = load_digits(return_X_y=True)
data = torch.as_tensor(data / 16, dtype=torch.float32); lab = torch.as_tensor(lab)
net = nn.Sequential(nn.Linear(64, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 10))
if not FIXED:
    net.apply(weights_init)
model = build(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
hist = []
for k in range(300):
    b = torch.randint(0, len(data), (50,))
    loss = F.cross_entropy(model(data[b]), lab[b])
    opt.zero_grad(); loss.backward(); opt.step(); hist.append(loss.item())
    if k % 50 == 0: print(k, loss.item())
report(hist, "loss", np.mean(hist[-20:]), np.mean(hist[-20:]) < 0.8)
