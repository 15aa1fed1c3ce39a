"""Body joint regression (x, y of 4 joints) from small silhouettes."""
import json
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

solver = {
    "base_lr": 0.02,
    "momentum": 0.9,
    "weight_decay": 0.5 if VARIANT == "faulty" else 0.0005,
    "stepsize": 200,
    "gamma": 0.2,
    "max_iter": 300,
    "batch_size": 32,
}


def stick_figures(n, seed, size=24):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size]
    imgs = np.zeros((n, 1, size, size), np.float32)
    joints = np.zeros((n, 8), np.float32)
    for k in range(n):
        hip = np.array([rng.uniform(8, 16), rng.uniform(7, 17)])
        a, b, c = rng.uniform(-0.5, 0.5), rng.uniform(-1.0, 0.2), rng.uniform(-0.2, 1.0)
        head = hip + 8 * np.array([-np.cos(a), np.sin(a)])
        left = hip + 7 * np.array([np.cos(b), np.sin(b)])
        right = hip + 7 * np.array([np.cos(c), np.sin(c)])
        for p in (head, left, right):
            for t in np.linspace(0, 1, 12):
                q = hip + t * (p - hip)
                imgs[k, 0] = np.maximum(imgs[k, 0], np.exp(-((yy - q[0]) ** 2 + (xx - q[1]) ** 2) / 1.5))
        imgs[k, 0] = np.maximum(imgs[k, 0], np.exp(-((yy - head[0]) ** 2 + (xx - head[1]) ** 2) / 4))
        joints[k] = np.concatenate([hip, head, left, right]) / size * 2 - 1
    imgs += 0.05 * rng.standard_normal(imgs.shape).astype(np.float32)
    return torch.from_numpy(imgs - imgs.mean()), torch.from_numpy(joints)


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.regressor = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 9, 96), nn.ReLU(), nn.Dropout(0.1), nn.Linear(96, 8))
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(m.weight)
                nn.init.constant_(m.bias, 0.0)

    def forward(self, x):
        return self.regressor(self.features(x))


def euclidean_loss(pred, gt):
    return 0.5 * (pred - gt).pow(2).sum(1).mean()


x, y = stick_figures(900, SEED)
xt, yt = stick_figures(200, SEED + 77)
net = PoseNet()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
weights = [p for n, p in net.named_parameters() if n.endswith("weight")]
biases = [p for n, p in net.named_parameters() if n.endswith("bias")]
opt = torch.optim.SGD([{"params": weights}, {"params": biases, "lr": 2 * solver["base_lr"], "weight_decay": 0.0}],
                      lr=solver["base_lr"], momentum=solver["momentum"], weight_decay=solver["weight_decay"])
policy = torch.optim.lr_scheduler.StepLR(opt, solver["stepsize"], solver["gamma"])


@torch.no_grad()
def mean_joint_error():
    net.eval()
    out = net(xt)
    net.train()
    spread = out.std(0).mean().item()
    return (out - yt).view(-1, 4, 2).norm(dim=-1).mean().item() * 12, spread  # pixels


trace = []
for it in range(solver["max_iter"]):
    idx = torch.randint(0, len(x), (solver["batch_size"],))
    loss = euclidean_loss(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    policy.step()
    trace.append(loss.item())
    if it % 60 == 0:
        err, spread = mean_joint_error()
        print(f"Iteration {it}, loss = {loss.item():.5f}, joint error {err:.2f} px, output spread {spread:.4f}")

err, spread = mean_joint_error()
print(f"final joint error {err:.2f} px")
print(json.dumps({"loss_first": trace[0], "loss_last": float(np.mean(trace[-20:])), "metric_name": "joint_error_px",
                  "metric": err, "ok": err < 1.5}))
