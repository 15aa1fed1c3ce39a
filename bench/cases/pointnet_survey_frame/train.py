# Classify scanned street furniture (pole, bin, bench, sign) from point clouds with a small PointNet.
import os
import json
import math
import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)

POINTS = 96
ORIGIN = np.array([1840.0, 2630.0, 112.0])      # survey tile, metres


def scan(cls, r):
    u = r.uniform(-1, 1, (POINTS, 3))
    if cls == 0:      # pole: tall thin cylinder
        a = r.uniform(0, 2 * np.pi, POINTS)
        p = np.stack([0.12 * np.cos(a), 0.12 * np.sin(a), 2.2 * u[:, 2]], 1)
    elif cls == 1:    # bin: short fat cylinder
        a = r.uniform(0, 2 * np.pi, POINTS)
        p = np.stack([0.45 * np.cos(a), 0.45 * np.sin(a), 0.6 * u[:, 2]], 1)
    elif cls == 2:    # bench: long flat slab with a back rest
        p = np.stack([1.3 * u[:, 0], 0.35 * u[:, 1], 0.05 * u[:, 2]], 1)
        back = r.random(POINTS) < 0.4
        p[back, 1], p[back, 2] = 0.35, 0.5 * np.abs(u[back, 2])
    else:             # sign: thin post with a disc on top
        p = np.stack([0.05 * u[:, 0], 0.05 * u[:, 1], 1.2 * u[:, 2]], 1)
        disc = r.random(POINTS) < 0.5
        rad, a = 0.45 * np.sqrt(r.random(POINTS)), r.uniform(0, 2 * np.pi, POINTS)
        p[disc] = np.stack([rad * np.cos(a), 0 * a, 1.2 + rad * np.sin(a)], 1)[disc]
    t = r.uniform(0, 2 * np.pi)
    rot = np.array([[np.cos(t), -np.sin(t), 0], [np.sin(t), np.cos(t), 0], [0, 0, 1]])
    return p @ rot.T * r.uniform(0.85, 1.15) + r.normal(0, 0.02, (POINTS, 3))


def collect(n, seed):
    r = np.random.default_rng(seed)
    y = r.integers(0, 4, n)
    clouds = np.stack([scan(c, r) + ORIGIN + r.uniform(-60, 60, 3) * [1, 1, 0.05] for c in y])
    return clouds, torch.from_numpy(y)


def prepare(clouds):
    if VARIANT == "fixed":
        clouds = clouds - clouds.mean(1, keepdims=True)
        clouds = clouds / np.sqrt((clouds ** 2).sum(-1)).max(1)[:, None, None]
    return torch.tensor(clouds, dtype=torch.float32)


class PointNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 96))
        self.cls = nn.Sequential(nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, classes))

    def forward(self, pts):
        return self.cls(self.point(pts).amax(1))


clouds, y = collect(1200, SEED + 5)
tclouds, ty = collect(300, SEED + 6)
x, tx = prepare(clouds), prepare(tclouds)
net = PointNet()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
hist = []
for step in range(300):
    i = torch.randint(0, len(x), (32,))
    loss = nn.functional.cross_entropy(model(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    hist.append(loss.item())
    if step % 50 == 49:
        print(f"{step + 1:4d} loss {np.mean(hist[-50:]):.3f}")

with torch.no_grad():
    acc = (net(tx).argmax(1) == ty).float().mean().item()
f = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": f(hist[0]), "loss_last": f(float(np.mean(hist[-10:]))), "metric_name": "test_acc", "metric": acc,
                  "ok": acc > 0.85}))
