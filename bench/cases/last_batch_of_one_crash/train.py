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

from torch.utils.data import DataLoader, TensorDataset
X = torch.randn(641, 8); y = (X[:, 0] * X[:, 1] > 0).long()
net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2)); model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-2); hist = []
for epoch in range(15):
    for xb, yb in DataLoader(TensorDataset(X, y), batch_size=64, shuffle=True, drop_last=FIXED):
        loss = F.cross_entropy(model(xb), yb)
        opt.zero_grad(); loss.backward(); opt.step(); hist.append(loss.item())
report(hist, "loss", np.mean(hist[-10:]), np.mean(hist[-10:]) < 0.35)
