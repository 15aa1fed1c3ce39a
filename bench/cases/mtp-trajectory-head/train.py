"""Multi-modal trajectory prediction: raster crop + agent state -> K future paths with scores."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(seed)
np.random.seed(seed)
torch.set_num_threads(1)

HORIZON, MODES, SIZE = 6, 2, 16
DT = 0.5


def build_scenes(n, rng):
    """Agents drive with speed v, acceleration a, yaw rate w; the raster shows the road's lateral slope."""
    v = rng.uniform(0.5, 3.0, n)
    a = rng.uniform(-0.4, 0.4, n)
    w = rng.uniform(-0.9, 0.9, n)
    slope = rng.uniform(-0.5, 0.5, n)
    t = DT * np.arange(1, HORIZON + 1)
    xs, ys = np.zeros((n, HORIZON)), np.zeros((n, HORIZON))
    px, py = np.zeros(n), np.zeros(n)
    sub = 10
    for k in range(HORIZON * sub):
        tt = (k + 0.5) * DT / sub
        speed = np.clip(v + a * tt, 0, None)
        head = w * tt + slope * 0.3
        px = px + speed * np.cos(head) * DT / sub
        py = py + speed * np.sin(head) * DT / sub
        if (k + 1) % sub == 0:
            xs[:, (k + 1) // sub - 1], ys[:, (k + 1) // sub - 1] = px, py
    grid = np.linspace(-1, 1, SIZE)
    gx, gy = np.meshgrid(grid, grid, indexing="ij")
    raster = np.exp(-((gy[None] - slope[:, None, None] * gx[None]) ** 2) / 0.05)
    raster = raster + 0.05 * rng.normal(size=raster.shape)
    fut = np.stack([xs, ys], -1) + 0.02 * rng.normal(size=(n, HORIZON, 2))
    state = np.stack([v - 1.75, a * 3, w * 2], 1)
    as_t = lambda z: torch.tensor(z, dtype=torch.float32)
    return as_t(raster[:, None]), as_t(state), as_t(fut)


class Backbone(nn.Module):
    def __init__(self, out=32):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * 16, out), nn.ReLU())

    def forward(self, img):
        return self.features(img)


class TrajectoryNet(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.backbone = Backbone()
        self.fc1 = nn.Linear(32 + 3, hidden)
        self.fc2 = nn.Linear(hidden, MODES * HORIZON * 2 + MODES)

    def forward(self, img, state):
        z = torch.cat([self.backbone(img), state], 1)
        h = self.fc1(z)
        if variant == "fixed":
            h = F.relu(h)
        return self.fc2(h)


def split_output(out):
    paths = out[:, :-MODES].view(-1, MODES, HORIZON, 2)
    return paths, out[:, -MODES:]


def mtp_loss(out, gt):
    paths, scores = split_output(out)
    err = (paths - gt[:, None]).norm(dim=-1).mean(-1)
    best = err.detach().argmin(1)
    reg = F.smooth_l1_loss(paths[torch.arange(len(gt)), best], gt)
    return F.cross_entropy(scores, best) * 0.1 + reg


rng = np.random.default_rng(seed + 7)
train = build_scenes(3000, rng)
test = build_scenes(600, rng)
model = TrajectoryNet()
step_fn = torch.compile(model, backend=backend) if backend else model
opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=4e-3, total_steps=400)

log = []
for step in range(400):
    idx = torch.randint(0, len(train[0]), (96,))
    img, st, gt = (t[idx] for t in train)
    loss = mtp_loss(step_fn(img, st), gt)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    sched.step()
    log.append(loss.item())
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.5f}")

model.eval()
with torch.no_grad():
    paths, scores = split_output(model(test[0], test[1]))
    top = paths[torch.arange(len(scores)), scores.argmax(1)]
    ade = (top - test[2]).norm(dim=-1).mean().item()
print("average displacement error, top mode:", round(ade, 4))
print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-20:])),
                  "metric_name": "ade_m", "metric": ade, "ok": ade < 0.28}))
