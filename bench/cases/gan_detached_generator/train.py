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

G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)); D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
g, d = build(G), build(D)
og = torch.optim.Adam(G.parameters(), 2e-3, betas=(0.5, 0.9)); od = torch.optim.Adam(D.parameters(), 2e-3, betas=(0.5, 0.9)); ls = []
bce = nn.BCEWithLogitsLoss()
for s in range(300):
    real = torch.randn(64, 2) * 0.3 + torch.tensor([2.0, -1.0]); fake = g(torch.randn(64, 4)).detach()
    if FIXED: fake = g(torch.randn(64, 4))
    od.zero_grad(); dl = bce(d(real), torch.ones(64, 1)) + bce(d(fake.detach()), torch.zeros(64, 1)); dl.backward(); od.step()
    og.zero_grad(); gl = bce(d(fake), torch.ones(64, 1)); gl.backward(); og.step(); ls.append(gl.item())
    if s % 60 == 0: print(s, dl.item(), gl.item())
gap = (G(torch.randn(500, 4)).mean(0) - torch.tensor([2.0, -1.0])).norm().item()
report(ls, "mean_gap", gap, gap < 0.8)
