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

from sklearn.datasets import load_iris
X, y = load_iris(return_X_y=True)
X = torch.tensor((X - X.mean(0)) / X.std(0)).float(); y = torch.tensor(y)


class Iris(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 10)
        self.output = nn.Linear(10, 3)

    def forward(self, x):
        z = self.output(torch.relu(self.hidden(x)))
        return F.log_softmax(z, dim=1) if FIXED else z


net = Iris(); model = build(net)
criterion = nn.NLLLoss()
opt = torch.optim.Adam(net.parameters(), lr=0.01)
hist = []
for e in range(200):
    loss = criterion(model(X), y)
    opt.zero_grad(); loss.backward(); opt.step(); hist.append(loss.item())
    if e % 40 == 0: print(e, hist[-1])
acc = (model(X).argmax(1) == y).float().mean().item()
report(hist, "loss", hist[-1], 0 <= hist[-1] < 0.3 and acc > 0.9)
