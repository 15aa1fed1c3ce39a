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

from sklearn.datasets import load_diabetes
w = load_diabetes()
X = torch.tensor(w.data / w.data.std(0)).float()
Y = torch.tensor((w.target - w.target.mean()) / w.target.std()).float()
net = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
model = build(net)
sgd = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9 if FIXED else 0.999)
ls = []
for ep in range(300):
    sgd.zero_grad()
    loss = F.mse_loss(model(X)[:, 0], Y)
    loss.backward()
    sgd.step()
    ls.append(loss.item())
    if ep % 30 == 0:
        print("epoch", ep, ls[-1])
late = float(np.mean(ls[150:]))
report(ls, "late_loss", late, late < 0.55)
