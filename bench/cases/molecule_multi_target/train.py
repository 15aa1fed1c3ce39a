"""Message passing on small random molecules, three properties from one readout."""
import json
import math
import os

import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)

ATOMS, TYPES = 9, 4
NAMES = ["dipole", "gap", "energy"]
CHARGE = torch.tensor([0.1, -0.3, 0.45, -0.25])
REF = torch.tensor([-13.6, -1029.0, -1485.0, -2042.0])


def molecules(n):
    kind = torch.multinomial(torch.tensor([0.4, 0.4, 0.1, 0.1]), n * ATOMS, replacement=True).view(n, ATOMS)
    adj = (torch.rand(n, ATOMS, ATOMS) < 0.22).float().triu(1)
    adj = adj + adj.transpose(1, 2)
    q = CHARGE[kind]
    around = (adj @ q.unsqueeze(-1)).squeeze(-1)
    dipole = 1.5 + (q - 0.5 * around).abs().sum(1)
    gap = 7 - 0.35 * adj.sum((1, 2)) / 2 + 1.2 * (q * around).sum(1)
    energy = REF[kind].sum(1) - 4.0 * adj.sum((1, 2))
    y = torch.stack([dipole, gap, energy], 1)
    return nn.functional.one_hot(kind, TYPES).float(), adj, y


class MPNN(nn.Module):
    def __init__(self, h=32, rounds=3):
        super().__init__()
        self.embed = nn.Linear(TYPES, h)
        self.message = nn.ModuleList(nn.Linear(h, h) for _ in range(rounds))
        self.update = nn.ModuleList(nn.Linear(2 * h, h) for _ in range(rounds))
        self.readout = nn.Sequential(nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 3))

    def forward(self, x, adj):
        h = torch.nn.functional.silu(self.embed(x))
        for m, u in zip(self.message, self.update):
            inc = adj @ m(h)
            h = h + torch.nn.functional.silu(u(torch.cat([h, inc], -1)))
        return self.readout(h.mean(1))


train, test = molecules(3000), molecules(500)
if VARIANT == "fixed":
    mean, std = train[2].mean(0), train[2].std(0)
else:
    mean, std = torch.zeros(3), torch.ones(3)

net = MPNN()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 350)
first = last = None
for step in range(350):
    i = torch.randint(0, 3000, (64,))
    out = model(train[0][i], train[1][i])
    loss = ((out - (train[2][i] - mean) / std) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    last = loss.item()
    first = last if first is None else first
    if step % 50 == 0:
        print(f"step {step} loss {last:.4g}")

with torch.no_grad():
    pred = net(test[0], test[1]) * std + mean
r2 = 1 - ((pred - test[2]) ** 2).mean(0) / test[2].var(0)
for n, v in zip(NAMES, r2.tolist()):
    print(f"R2 {n}: {v:.3f}")
worst = r2.min().item()
f = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": f(first), "loss_last": f(last), "metric_name": "worst_r2", "metric": f(worst),
                  "ok": bool(worst > 0.6)}))
