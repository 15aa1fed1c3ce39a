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

def make(n):
    y = (torch.rand(n) < 0.02).float()
    x = torch.randn(n, 10)
    x[:, :3] += 1.0 * y[:, None]
    return x, y


X, y = make(4000)
Xt, yt = make(4000)
net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
model = build(net)
crit = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(49.0)) if FIXED else nn.BCEWithLogitsLoss()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
ls = []
for step in range(300):
    i = torch.randint(0, len(X), (128,))
    loss = crit(model(X[i]).squeeze(1), y[i])
    opt.zero_grad(); loss.backward(); opt.step()
    ls.append(loss.item())
    if step % 60 == 0: print(step, ls[-1])
with torch.no_grad():
    pred = model(Xt).squeeze(1) > 0
recall = (pred & (yt > 0)).sum().item() / yt.sum().item()
report(ls, "recall", recall, recall > 0.5)
