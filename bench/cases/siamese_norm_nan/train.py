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

class Siamese(nn.Module):
    def __init__(self):
        super().__init__(); self.enc = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x): return self.enc(x)


net = Siamese(); model = build(net); opt = torch.optim.Adam(net.parameters(), 1e-3); ls = []
base = torch.randn(200, 8)
for s in range(200):
    i, j = torch.randint(0, 200, (32,)), torch.randint(0, 200, (32,)); j[:8] = i[:8]
    same = (i % 5 == j % 5).float()
    d2 = ((model(base[i]) - model(base[j])) ** 2).sum(1)
    d = torch.sqrt(d2 + 1e-8 if FIXED else d2)
    loss = (same * d ** 2 + (1 - same) * F.relu(1 - d) ** 2).mean()
    opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
    if s % 40 == 0: print(s, ls[-1])
report(ls, "loss", np.mean(ls[-10:]), np.mean(ls[-10:]) < 0.25)
