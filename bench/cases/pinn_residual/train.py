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

net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)); model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=5e-3); ls = []
mse = nn.MSELoss()
for it in range(400):
    t = (2 * torch.rand(64, 1)).requires_grad_(True)
    u = model(t)
    du = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
    residual = du + u
    start = model(torch.zeros(1, 1))
    loss = mse(residual, torch.zeros_like(residual)) + mse(start, torch.ones(1, 1))
    opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
    if it % 100 == 0: print(it, ls[-1])
with torch.no_grad():
    g = torch.linspace(0, 2, 50)[:, None]; err = (model(g) - torch.exp(-g)).abs().max().item()
report(ls, "max_error", err, err < 0.1)
