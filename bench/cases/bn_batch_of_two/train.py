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

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        norm = (lambda c: nn.GroupNorm(4, c)) if FIXED else nn.BatchNorm1d
        self.f1, self.n1 = nn.Linear(20, 32), norm(32)
        self.f2, self.n2 = nn.Linear(32, 32), norm(32)
        self.o = nn.Linear(32, 1)

    def forward(self, x):
        x = F.relu(self.n1(self.f1(x)))
        return self.o(F.relu(self.n2(self.f2(x))))[:, 0]


c_ = torch.randn(20)
X = torch.randn(800, 20); y = torch.tanh(X @ c_ / 3)
net = Net(); model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
ls = []
for step in range(400):
    i = torch.randint(0, 600, (2,))
    net.train()
    loss = F.mse_loss(model(X[i]), y[i])
    opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
    if step % 100 == 99:
        net.eval()
        with torch.no_grad():
            v = F.mse_loss(model(X[600:]), y[600:]).item()
        print(step, np.mean(ls[-50:]), v)
report(ls, "val_mse", v, v < 0.12)
