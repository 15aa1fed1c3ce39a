import json
import math
import os
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)


def field(p):
    """Height map in metres, known on the unit square."""
    x, y = p[:, 0], p[:, 1]
    return 900 + 350 * torch.sin(5 * x + 2 * y) + 200 * torch.cos(9 * y) * x + 120 * torch.sin(11 * x * y)


class FourierFeatures(nn.Module):
    def __init__(self, n=64, scale=1.0):
        super().__init__()
        self.freq = nn.Parameter(torch.randn(2, n) * scale, requires_grad=False)

    def forward(self, p):
        a = 2 * math.pi * p @ self.freq
        return torch.cat([a.sin(), a.cos()], 1)


class HeightField(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = FourierFeatures()
        self.coarse = nn.Sequential(nn.Linear(128, 64), nn.SiLU(), nn.Linear(64, 1))
        self.fine = nn.Sequential(nn.Linear(128, 64), nn.SiLU(), nn.Linear(64, 1))
        nn.init.zeros_(self.fine[2].weight)
        nn.init.zeros_(self.fine[2].bias)
        self.register_buffer("offset", torch.tensor(900.0))
        self.register_buffer("span", torch.tensor(300.0))

    def forward(self, p, stage: int):
        f = self.features(p)
        h = self.coarse(f)
        if stage > 0:
            h = h.detach() + 0.1 * self.fine(f)
        return self.offset + self.span * h.squeeze(1)


gen = torch.Generator().manual_seed(SEED)
pts = torch.rand(6000, 2, generator=gen)
obs = field(pts) + 10 * torch.randn(6000, generator=gen)
test = torch.rand(1500, 2, generator=gen)

net = HeightField()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
history = []
for stage, steps in ((0, 220), (1, 120)):
    part = net.coarse if stage == 0 else net.fine
    for q in net.coarse.parameters():
        q.requires_grad_(stage == 0)
    opt = torch.optim.Adam(part.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=40, T_mult=1, eta_min=1e-5)
    for step in range(steps):
        idx = torch.randint(0, len(pts), (256,))
        # sum of squared metres: the survey convention
        loss = (model(pts[idx], stage) - obs[idx]).pow(2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        history.append(loss.item())
        if step % 40 == 39:
            print(f"stage {stage} step {step + 1} sse {loss.item():.4g} lr {sched.get_last_lr()[0]:.2e}")

with torch.no_grad():
    err = net(test, 1) - field(test)
rel = (err.pow(2).mean().sqrt() / field(test).std()).item()
print(json.dumps({"loss_first": history[0], "loss_last": sum(history[-20:]) / 20, "metric_name": "relative_rmse", "metric": rel, "ok": rel < 0.08}))
