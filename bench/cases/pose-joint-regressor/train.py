import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)

SIZE = 24
SOLVER = {
    "base_lr": 0.02,
    "momentum": 0.9,
    "weight_decay": 0.0005 if VARIANT == "fixed" else 0.5,
    "max_iter": 360,
    "batch": 48,
    "display": 60,
}


def draw_limb(img, p, q):
    for a in np.linspace(0, 1, 14):
        c = p * (1 - a) + q * a
        yy, xx = np.mgrid[0:SIZE, 0:SIZE]
        img[:] = np.maximum(img, np.exp(-((xx - c[0]) ** 2 + (yy - c[1]) ** 2) / 1.6))


def make_people(n, rng):
    """Upper arm, forearm and hand: shoulder, elbow, wrist in pixel coordinates."""
    imgs = np.zeros((n, 1, SIZE, SIZE), np.float32)
    joints = np.zeros((n, 3, 2), np.float32)
    for i in range(n):
        sh = rng.uniform(8, 16, 2)
        a1, a2 = rng.uniform(-np.pi, np.pi), rng.uniform(-1.2, 1.2)
        el = sh + 6 * np.array([np.cos(a1), np.sin(a1)])
        wr = el + 5 * np.array([np.cos(a1 + a2), np.sin(a1 + a2)])
        draw_limb(imgs[i, 0], sh, el)
        draw_limb(imgs[i, 0], el, wr)
        imgs[i, 0] += 2.0 * np.exp(-sum((np.mgrid[0:SIZE, 0:SIZE][k] - sh[1 - k]) ** 2 for k in (0, 1)) / 3)
        joints[i] = np.stack([sh, el, wr])
    imgs += rng.normal(0, 0.05, imgs.shape).astype(np.float32)
    target = (joints / SIZE * 2 - 1).reshape(n, 6)
    return torch.from_numpy(imgs), torch.from_numpy(target)


class JointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, padding=2)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 32, 3, padding=1)
        self.fc6 = nn.Linear(32 * 6 * 6, 96)
        self.fc7 = nn.Linear(96, 6)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.conv3(x))
        x = F.relu(self.fc6(x.flatten(1)))
        return self.fc7(x)


class Solver:
    def __init__(self, net, cfg):
        self.net, self.cfg = net, cfg
        self.run = torch.compile(net, backend=COMPILE) if COMPILE else net
        decay = [p for n, p in net.named_parameters() if n.endswith("weight")]
        no_decay = [p for n, p in net.named_parameters() if n.endswith("bias")]
        self.opt = torch.optim.SGD([{"params": decay, "weight_decay": cfg["weight_decay"]},
                                    {"params": no_decay, "weight_decay": 0.0, "lr": cfg["base_lr"] * 2}],
                                   lr=cfg["base_lr"], momentum=cfg["momentum"])
        self.curve = []

    def euclidean_loss(self, pred, tgt):
        return 0.5 * (pred - tgt).pow(2).sum(1).mean()

    def solve(self, x, y):
        for it in range(self.cfg["max_iter"]):
            idx = torch.randint(0, len(x), (self.cfg["batch"],))
            loss = self.euclidean_loss(self.run(x[idx]), y[idx])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.curve.append(loss.item())
            if it % self.cfg["display"] == 0:
                print(f"Iteration {it}, loss = {loss.item():.5f}")


rng = np.random.default_rng(SEED)
xtr, ytr = make_people(700, rng)
xte, yte = make_people(150, rng)
net = JointNet()
solver = Solver(net, SOLVER)
solver.solve(xtr, ytr)

net.eval()
with torch.no_grad():
    pred = net(xte)
px = (pred - yte).view(-1, 3, 2).norm(dim=-1).mean().item() * SIZE / 2
print("spread of predictions over test images:", [round(v, 3) for v in pred.std(0).tolist()])
print(json.dumps({"loss_first": solver.curve[0], "loss_last": float(np.mean(solver.curve[-10:])),
                  "metric_name": "mean_joint_error_px", "metric": px, "ok": px < 2.2}))
