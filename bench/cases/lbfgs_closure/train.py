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
net = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 1)); model = build(net)
opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=10); ls = []
for it in range(12):
    def closure():
        opt.zero_grad()
        loss = F.mse_loss(model(X).squeeze(1), y)
        loss.backward()
        return loss
    ls.append(float(opt.step(closure)))
    print(it, ls[-1])
report(ls, "mse", ls[-1], ls[-1] < 0.5)
