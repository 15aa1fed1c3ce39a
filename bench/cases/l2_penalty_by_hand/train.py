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
d = load_diabetes(); X = torch.tensor(d.data / d.data.std(0)).float(); y = torch.tensor((d.target - d.target.mean()) / d.target.std()).float()
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)); model = build(net); opt = torch.optim.Adam(net.parameters(), 3e-3); ls = []
lam = 1e-4 if FIXED else 1.0
for s in range(300):
    i = torch.randint(0, len(X), (64,)); mse = F.mse_loss(model(X[i])[:, 0], y[i]); loss = mse + lam * sum((p ** 2).sum() for p in net.parameters())
    opt.zero_grad(); loss.backward(); opt.step(); ls.append(mse.item())
    if s % 60 == 0: print(s, ls[-1])
report(ls, "mse", np.mean(ls[-20:]), np.mean(ls[-20:]) < 0.6)
