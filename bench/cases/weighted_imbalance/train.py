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

y = (torch.rand(4000) < 0.05).long(); X = torch.randn(4000, 8); X[:, 0] += 1.5 * y
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)); model = build(net)
crit = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 19.0])); opt = torch.optim.Adam(net.parameters(), 3e-3); ls = []
for s in range(300):
    i = torch.randint(0, 4000, (128,))
    loss = crit(model(X[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
    if s % 60 == 0: print(s, ls[-1])
rec = (model(X)[y == 1].argmax(1) == 1).float().mean().item()
report(ls, "recall", rec, rec > 0.55)
