"""Pre-train a stem, keep it fixed, add an adapter and two heads (regression and classification)."""
import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

basis = torch.randn(12, 24) / 12 ** 0.5


def inputs(n):
    z = torch.randn(n, 12)
    return torch.tanh(z @ basis) + 0.05 * torch.randn(n, 24), z


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.stem_adapter = nn.Sequential(nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh())
        self.price = nn.Linear(6, 1)
        self.kind = nn.Linear(6, 3)

    def forward(self, x):
        h = self.stem_adapter(self.stem(x))
        return self.price(h).squeeze(1), self.kind(h)


model = MultiTask()
decode = nn.Linear(64, 12)
pre = torch.optim.Adam([*model.stem.parameters(), *decode.parameters()], lr=3e-3)
for _ in range(150):
    x, z = inputs(80)
    loss = F.mse_loss(decode(model.stem(x)), z)
    pre.zero_grad()
    loss.backward()
    pre.step()
print(f"stem trained, reconstruction {loss.item():.3f}")

prefix = "stem." if VARIANT == "fixed" else "stem"
for name, p in model.named_parameters():
    if name.startswith(prefix):
        p.requires_grad = False
        p.grad = None


def tasks(n):
    x, z = inputs(n)
    price = z[:, 0] + 0.7 * z[:, 1]
    kind = (z[:, 2] + z[:, 3] > 0.6).long() + (z[:, 2] + z[:, 3] > -0.6).long()
    return x, price, kind


net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=6e-3)
log = []
for it in range(350):
    x, price, kind = tasks(64)
    a, b = net(x)
    loss = F.mse_loss(a, price) + F.cross_entropy(b, kind)
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.append(loss.item())
    if it % 70 == 0:
        print(f"{it} loss {loss.item():.3f}")
with torch.no_grad():
    x, price, kind = tasks(1500)
    a, b = net(x)
    acc = (b.argmax(1) == kind).float().mean().item()
    r2 = 1 - F.mse_loss(a, price).item() / price.var().item()
print(f"kind {acc:.3f} price r2 {r2:.3f}")
print(json.dumps({"loss_first": log[0], "loss_last": sum(log[-20:]) / 20, "metric_name": "mean_score", "metric": (acc + r2) / 2,
                  "ok": acc > 0.8 and r2 > 0.8}))
