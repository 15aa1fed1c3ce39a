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

x = 2 * torch.rand(600, 2) - 1
y = ((x[:, 0] * x[:, 1]) > 0).float()
net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
if not FIXED:
    for p in net.parameters():
        nn.init.constant_(p, 0.5)
model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=0.05)
ls = []
for epoch in range(250):
    out = model(x).view(-1)
    loss = nn.BCEWithLogitsLoss()(out, y)
    opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
    if epoch % 50 == 0: print(epoch, ls[-1])
acc = ((model(x).view(-1) > 0).float() == y).float().mean().item()
report(ls, "accuracy", acc, acc > 0.9)
