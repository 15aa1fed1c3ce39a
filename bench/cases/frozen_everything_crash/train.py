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

class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.fc = nn.Linear(32, 1000)

    def forward(self, x):
        return self.fc(self.features(x))


def set_parameter_requires_grad(model):
    for p in model.parameters():
        p.requires_grad = False


from sklearn.datasets import load_digits
d = load_digits()
x = torch.tensor(d.images[:, None] / 16).float()
y = torch.tensor(d.target % 2)
net = Small()
if FIXED:
    set_parameter_requires_grad(net)
    net.fc = nn.Linear(32, 2)
else:
    net.fc = nn.Linear(32, 2)
    set_parameter_requires_grad(net)
model = build(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
losses = []
for i in range(200):
    j = torch.randint(0, len(x), (32,))
    out = model(x[j])
    loss = nn.CrossEntropyLoss()(out, y[j])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if i % 40 == 0: print(i, losses[-1])
last = np.mean(losses[-20:])
report(losses, "loss", last, last < 0.66)
