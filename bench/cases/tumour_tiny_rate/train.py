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

from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler


def get_data():
    d = load_breast_cancer()
    return torch.tensor(StandardScaler().fit_transform(d.data), dtype=torch.float32), torch.tensor(d.target, dtype=torch.float32)


X, t = get_data()
clf = nn.Sequential(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 1))
model = build(clf)
lr = 0.1 if FIXED else 1e-6
opt = torch.optim.SGD(clf.parameters(), lr=lr, momentum=0.9)
log = []
for step in range(250):
    idx = torch.randint(0, len(X), (64,))
    out = model(X[idx]).squeeze(1)
    loss = F.binary_cross_entropy_with_logits(out, t[idx])
    opt.zero_grad(set_to_none=False)
    loss.backward()
    opt.step()
    log.append(loss.item())
    if step % 50 == 0:
        print(step, log[-1])
report(log, "loss", np.mean(log[-10:]), np.mean(log[-10:]) < 0.2)
