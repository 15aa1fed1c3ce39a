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

from sklearn.datasets import load_wine
d = load_wine()
x = torch.tensor((d.data - d.data.mean(0)) / d.data.std(0)).float()
y = torch.tensor(d.target)
net = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 3))
model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
hist = []
for epoch in range(150):
    out = model(x)
    if FIXED:
        loss = F.cross_entropy(out, y)
    else:
        loss = F.mse_loss(torch.argmax(out, dim=1).float(), y.float())
    opt.zero_grad()
    loss.backward()
    opt.step()
    hist.append(loss.item())
report(hist, "loss", hist[-1], hist[-1] < 0.1)
