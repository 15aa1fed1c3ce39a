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

dtype = torch.float32 if FIXED else torch.float16


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(40, 64)
        self.head = nn.Linear(1, 1)

    def forward(self, a, b):
        ea, eb = self.enc(a), self.enc(b)
        sq = ((ea - eb) ** 2).sum(1, keepdim=True)
        return self.head(sq / 20000)


def pairs(n):
    a = 30 * torch.randn(n, 40)
    same = torch.rand(n) < 0.5
    b = torch.where(same[:, None], a + 3 * torch.randn(n, 40), 30 * torch.randn(n, 40))
    return a.to(dtype), b.to(dtype), same.float()


net = Scorer().to(dtype); model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=2e-2, eps=1e-4)
hist = []
for i in range(200):
    a, b, s = pairs(64)
    loss = F.binary_cross_entropy_with_logits(model(a, b)[:, 0].float(), s)
    opt.zero_grad(); loss.backward(); opt.step()
    hist.append(loss.item())
    if i % 40 == 0: print(i, hist[-1])
report(hist, "loss", np.mean(hist[-10:]), np.mean(hist[-10:]) < 0.6)
