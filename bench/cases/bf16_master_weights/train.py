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

dtype = torch.float32 if FIXED else torch.bfloat16
from sklearn.datasets import load_digits
X, y = load_digits(return_X_y=True)
X = torch.tensor(X / 16).to(dtype); y = torch.tensor(y)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d); self.lin = nn.Linear(d, d)

    def forward(self, x):
        return x + F.gelu(self.lin(self.norm(x)))


net = nn.Sequential(nn.Linear(64, 48), Block(48), Block(48), nn.LayerNorm(48), nn.Linear(48, 10)).to(dtype)
model = build(net)
opt = torch.optim.SGD(net.parameters(), lr=1e-3 * 3, momentum=0.0)
ls = []
for s in range(400):
    i = torch.randint(0, len(X), (64,))
    loss = F.cross_entropy(model(X[i]).float(), y[i])
    opt.zero_grad(); (loss).backward(); opt.step()
    ls.append(loss.item())
    if s % 80 == 0: print(s, ls[-1])
report(ls, "loss", np.mean(ls[-20:]), np.mean(ls[-20:]) < 0.75)
