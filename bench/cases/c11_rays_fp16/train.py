"""Joint depth + ray-direction prediction from small images, mixed precision."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)
B, SZ, STEPS = 8, 24, 160


def scene(n, g):
    v, u = torch.meshgrid(torch.linspace(-1, 1, SZ), torch.linspace(-1, 1, SZ), indexing="ij")
    yaw, pitch, foc = [torch.empty(n, 1, 1).uniform_(a, b, generator=g) for a, b in ((-0.7, 0.7), (-0.7, 0.7), (0.8, 1.6))]
    x, y, z = u / foc + yaw, v / foc + pitch, torch.ones(n, SZ, SZ)
    rays = F.normalize(torch.stack([x, y, z], 1), dim=1)
    depth = 4.0 + 2.0 * yaw * u + 1.5 * pitch * v + torch.rand(n, 1, 1, generator=g)
    img = torch.stack([x, y, depth / 4 - 1, foc * torch.ones_like(x)], 1)
    return img + 0.03 * torch.randn(img.shape, generator=g), depth[:, None], rays


class Trunk(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Conv2d(4, c, 3, padding=1)
        self.b = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x))))


class RigNet(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.trunk = Trunk(c)
        self.depth_head = nn.Conv2d(c, 1, 1)
        self.ray_trunk = Trunk(c)
        self.ray_head = nn.Conv2d(c, 3, 1)

    def forward(self, x):
        return {"depth": self.depth_head(self.trunk(x)), "rays": self.ray_head(self.ray_trunk(x))}


class MultiTaskLoss(nn.Module):
    def __init__(self, w_depth=1.0, w_ray=1e-3):
        super().__init__()
        self.w_depth, self.w_ray = w_depth, w_ray

    def forward(self, out, depth, rays):
        l_depth = F.mse_loss(out["depth"].float(), depth)
        l_ray = (1 - F.cosine_similarity(out["rays"].float(), rays, dim=1)).mean()
        return self.w_depth * l_depth + self.w_ray * l_ray, l_depth.item(), l_ray.item()


def angular_error(net, data):
    img, _, rays = data
    with torch.no_grad():
        r = F.normalize(net(img)["rays"].float(), dim=1)
    return torch.rad2deg(torch.acos((r * rays).sum(1).clamp(-1, 1))).mean().item()


g = torch.Generator().manual_seed(SEED)
val = scene(24, g)
model = RigNet()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
criterion = MultiTaskLoss()
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
scaler = torch.amp.GradScaler("cpu", enabled=VARIANT == "fixed")
hist = []
for step in range(STEPS):
    img, depth, rays = scene(B, g)
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(img)
        loss, ld, lr_ = criterion(out, depth, rays)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    hist.append(loss.item())
    if step % 40 == 39:
        print(f"step {step + 1} total {loss.item():.4f} depth {ld:.4f} ray {lr_:.4f}")
err = angular_error(net, val)
print(json.dumps({"loss_first": hist[0], "loss_last": hist[-1], "metric_name": "ray_angle_error_deg", "metric": err, "ok": err < 8.0}))
