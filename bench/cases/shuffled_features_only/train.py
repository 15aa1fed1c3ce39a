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
from sklearn.utils import shuffle
d = load_breast_cancer()
X = (d.data - d.data.mean(0)) / d.data.std(0)
y = d.target
if FIXED:
    X, y = shuffle(X, y, random_state=SEED)
else:
    X = shuffle(X, random_state=SEED)
X, y = torch.tensor(X).float(), torch.tensor(y).long()
Xa, ya, Xb, yb = X[:420], y[:420], X[420:], y[420:]
net = nn.Sequential(nn.Linear(30, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 2), nn.LogSoftmax(dim=-1))
model = build(net)
opt = torch.optim.RMSprop(net.parameters(), lr=2e-3)
crit = nn.NLLLoss()
tr = []
for epoch in range(18):
    net.train()
    perm = torch.randperm(len(Xa))
    for part in perm.split(30):
        opt.zero_grad()
        loss = crit(model(Xa[part]), ya[part])
        loss.backward()
        opt.step()
        tr.append(loss.item())
    net.eval()
    with torch.no_grad():
        out = model(Xb)
        acc = (out.argmax(1) == yb).float().mean().item()
        print(f"{epoch} train {tr[-1]:.3f} val {crit(out, yb).item():.3f} acc {acc:.3f}")
report(tr, "val_accuracy", acc, acc > 0.9)
