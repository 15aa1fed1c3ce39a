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
        self.l1 = nn.Linear(10, 20)
        self.l2 = nn.Linear(20, 1)

    def forward(self, x):
        return self.l2(F.relu(self.l1(x)))


from sklearn.datasets import load_diabetes
d = load_diabetes()
x = torch.tensor(d.data / d.data.std(0)).float()
y = torch.tensor((d.target - d.target.mean()) / d.target.std()).float().view(-1, 1)
net = Net(); model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
losses = []
for epoch in range(200):
    pred = model(x)
    loss = ((pred - y) ** 2).mean()
    if not FIXED:
        loss = torch.tensor(loss.item(), requires_grad=True)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if epoch % 40 == 0: print(epoch, loss.item())
report(losses, "mse", losses[-1], losses[-1] < 0.5)
