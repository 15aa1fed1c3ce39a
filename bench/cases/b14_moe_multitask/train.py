"""Shared mixture-of-experts trunk, three tasks with learned weights. One task has labels on few rows only,
and one expert is reserved for the rare device type."""
import os, json, math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
rng = np.random.RandomState(SEED + 9)
torch.set_num_threads(1)

D, RARE = 16, 0.02


def build(n):
    x = rng.randn(n, D).astype(np.float32)
    device = np.where(rng.rand(n) < RARE, 3, rng.randint(0, 3, n))
    W = W_DEV[device]
    h = np.tanh(np.einsum("nd,ndk->nk", x, W) * 0.6)
    wear = (h @ V1 + 0.05 * rng.randn(n)).astype(np.float32)
    fault = (h @ V2 > 0).astype(np.int64)
    life = (30 * (h @ V3) + 200 + rng.randn(n)).astype(np.float32)
    has_life = (rng.rand(n) < 0.06).astype(np.float32)
    return [torch.from_numpy(a) for a in (x, device, wear, fault, life, has_life)]


g = np.random.RandomState(77 + SEED)
base = g.randn(D, 4) / 3
W_DEV = np.stack([base + 0.5 * g.randn(D, 4) / 3 for _ in range(4)])
V1, V2, V3 = g.randn(4), g.randn(4), g.randn(4)


class Expert(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Linear(i, 48), nn.GELU(), nn.Linear(48, o), nn.GELU())


class RoutedTrunk(nn.Module):
    """dispatch by device type; an expert with no rows in the batch is skipped"""

    def __init__(self, out=32, n=4):
        super().__init__()
        self.common = Expert(D, out)
        self.experts = nn.ModuleList([Expert(D, out) for _ in range(n)])

    def forward(self, x, device):
        y = self.common(x)
        extra = torch.zeros_like(y)
        for k, e in enumerate(self.experts):
            rows = (device == k).nonzero().squeeze(1)
            if rows.numel():
                extra = extra.index_add(0, rows, e(x[rows]))
        return y + extra


class Fleet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = RoutedTrunk()
        self.wear = nn.Linear(32, 1)
        self.fault = nn.Linear(32, 2)
        self.life = nn.Linear(32, 1)
        nn.init.constant_(self.life.bias, 200.0)
        self.log_var = nn.Parameter(torch.tensor([0.0, 0.0, 5.0]))

    def forward(self, x, device):
        h = self.trunk(x, device)
        return self.wear(h).squeeze(1), self.fault(h), self.life(h).squeeze(1)


train, test = build(6000), build(1500)
model = Fleet()
net = torch.compile(model, backend=COMPILE) if COMPILE else model
decay = [p for p in model.parameters() if p.ndim > 1]
plain = [p for p in model.parameters() if p.ndim <= 1]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=4e-3)
STEPS = 360
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS, eta_min=1e-4)
losses, used = [], np.zeros(4)
model.train()
for step in range(STEPS):
    idx = torch.randint(0, 6000, (96,))
    x, dev, wear, fault, life, has = (a[idx] for a in train)
    pw, pf, pl = net(x, dev)
    per_task = torch.stack([F.mse_loss(pw, wear), F.cross_entropy(pf, fault),
                            ((pl - life).pow(2) * has).sum() / has.sum().clamp(min=1)])
    seen = torch.tensor([1.0, 1.0, float(has.sum() > 0)])
    loss = (seen * (0.5 * torch.exp(-model.log_var) * per_task + 0.5 * model.log_var)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step(); sched.step()
    losses.append(loss.item())
    used += np.bincount(dev.numpy(), minlength=4) > 0
    if step % 60 == 59:
        print(f"step {step + 1} loss {np.mean(losses[-30:]):+.3f} tasks {[round(v, 3) for v in per_task.tolist()]} "
              f"weights {[round(v, 3) for v in torch.exp(-model.log_var).tolist()]}")
print("share of batches that reached each expert:", (used / STEPS).round(2))

model.eval()
with torch.no_grad():
    x, dev, wear, fault, life, _ = test
    pw, pf, pl = model(x, dev)
    r2 = lambda p, t: 1 - ((p - t) ** 2).mean().item() / t.var().item()
    acc = (pf.argmax(1) == fault).float().mean().item()
    scores = {"wear_r2": r2(pw, wear), "fault_acc": acc, "life_r2": r2(pl, life)}
print({k: round(v, 3) for k, v in scores.items()})
worst = min(scores.values())
fin = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(np.mean(losses[-20:])), "metric_name": "worst_task_score",
                  "metric": fin(worst), "ok": bool(worst > 0.8)}))
