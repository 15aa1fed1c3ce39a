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

from sklearn.datasets import make_regression
from torch.utils.data import DataLoader, TensorDataset


class Regressor(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


X, price = make_regression(1000, 8, noise=5.0, random_state=SEED)
price = 300000 + 90000 * price / price.std()
X = torch.tensor(X).float()
y = torch.tensor(price).float()
mean, std = y.mean(), y.std()
if FIXED:
    y = (y - mean) / std
reg = Regressor(8)
model = build(reg)
opt = torch.optim.Adam(reg.parameters(), lr=1e-3)
hist = []
for epoch in range(12):
    for xb, yb in DataLoader(TensorDataset(X, y), 32, shuffle=True):
        loss = F.mse_loss(model(xb), yb)
        opt.zero_grad(); loss.backward(); opt.step()
        hist.append(loss.item())
    print(f"epoch {epoch} loss {loss.item():.4g}")
with torch.no_grad():
    p = model(X)
r2 = 1 - ((p - y) ** 2).mean().item() / y.var().item()
report(hist, "r2", r2, r2 > 0.7)
