"""Multi-modal motion forecasting: rasterised lane layout + agent state -> K candidate paths with confidences."""
import json
import math
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
BACKEND = os.environ.get("CASE_COMPILE", "")
ASV_DIM, RASTER, HORIZON, DT = 3, 16, 6, 0.5
torch.set_num_threads(1)


def seed_all(s):
    np.random.seed(s)
    torch.manual_seed(s)


def simulate(n):
    """speed, acceleration and yaw rate now; the raster shows whether the lane ahead is blocked (the car brakes)."""
    speed = np.random.uniform(2, 12, n)
    accel = np.random.uniform(-1, 1, n)
    yaw = np.random.uniform(-0.6, 0.6, n)
    blocked = np.random.random(n) < 0.5
    raster = (np.random.random((n, 1, RASTER, RASTER)) < 0.06).astype(np.float32)
    for i in np.flatnonzero(blocked):
        r, c = np.random.randint(1, 6), np.random.randint(5, 8)
        raster[i, 0, r:r + 3, c:c + 5] = 1.0
    v, th = speed.copy(), np.zeros(n)
    pos, path = np.zeros((n, 2)), []
    for _ in range(HORIZON):
        th = th + yaw * DT
        v = np.clip(v + (accel - 3.0 * blocked) * DT, 0, None)
        pos = pos + DT * v[:, None] * np.stack([np.sin(th), np.cos(th)], 1)
        path.append(pos.copy())
    asv = np.stack([(speed - 7) / 3, accel / 0.6, yaw / 0.35], 1).astype(np.float32)
    path = np.stack(path, 1).astype(np.float32) / 5.0
    return torch.from_numpy(raster), torch.from_numpy(asv), torch.from_numpy(path)


class RasterBackbone(nn.Module):
    def __init__(self, out_dim):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.proj = nn.Linear(16 * 16, out_dim)

    def forward(self, img):
        return F.relu(self.proj(F.relu(self.c2(F.relu(self.c1(img)))).flatten(1)))


class MultiPath(nn.Module):
    def __init__(self, num_modes, hidden=160, feat=32):
        super().__init__()
        self.num_modes = num_modes
        self.backbone = RasterBackbone(feat)
        self.fc1 = nn.Linear(feat + ASV_DIM, hidden)
        self.fc2 = nn.Linear(hidden, num_modes * HORIZON * 2 + num_modes)

    def forward(self, image, asv):
        z = self.fc1(torch.cat([self.backbone(image), asv], dim=1))
        if VARIANT == "fixed":
            z = F.relu(z)
        out = self.fc2(z)
        return out[:, :-self.num_modes].unflatten(1, (self.num_modes, HORIZON, 2)), out[:, -self.num_modes:]


def mtp_loss(paths, conf, target, weight=1.0):
    with torch.no_grad():
        best = (paths - target[:, None]).pow(2).sum((-1, -2)).argmin(1)
    chosen = paths[torch.arange(len(best)), best]
    return F.smooth_l1_loss(chosen, target) + 0.05 * weight * F.cross_entropy(conf, best)


def minade(model, data):
    with torch.no_grad():
        paths, conf = model(data[0], data[1])
    top = paths[torch.arange(len(conf)), conf.argmax(1)]
    return 5.0 * (top - data[2]).norm(dim=-1).mean().item()


seed_all(SEED)
train, test = simulate(3000), simulate(600)
model = MultiPath(num_modes=2)
fwd = torch.compile(model, backend=BACKEND) if BACKEND else model
groups = [{"params": model.backbone.parameters(), "lr": 1e-3},
          {"params": [*model.fc1.parameters(), *model.fc2.parameters()], "lr": 4e-3}]
opt = torch.optim.RMSprop(groups, alpha=0.95)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 16)

log = []
for epoch in range(16):
    model.train()
    for idx in torch.randperm(3000).split(60):
        paths, conf = fwd(train[0][idx], train[1][idx])
        loss = mtp_loss(paths, conf, train[2][idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.append(loss.item())
    sched.step()
    if epoch % 3 == 0:
        print(f"epoch {epoch:2d}  loss {np.mean(log[-50:]):.4f}  ADE top-1 {minade(model.eval(), test):.2f} m")

ade = minade(model.eval(), test)
print(f"final ADE of the most confident path: {ade:.3f} m")
num = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": num(log[0]), "loss_last": num(np.mean(log[-50:])), "metric_name": "ade_m", "metric": num(ade), "ok": ade < 0.6}))
