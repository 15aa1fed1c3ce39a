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

class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, x):
        return F.normalize(self.f(x), dim=-1)


net = Tower(); model = build(net); mix = torch.randn(6, 16)
opt = torch.optim.Adam(net.parameters(), lr=3e-3); ls = []
for s in range(300):
    z = torch.randn(64, 6)
    a, b = model(z @ mix + 0.3 * torch.randn(64, 16)), model(z @ mix + 0.3 * torch.randn(64, 16))
    logits = a @ b.t() / 0.1
    loss = F.cross_entropy(logits, torch.arange(64))
    opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
    if s % 60 == 0: print(s, ls[-1])
acc = (logits.argmax(1) == torch.arange(64)).float().mean().item()
report(ls, "retrieval", acc, acc > 0.7)
