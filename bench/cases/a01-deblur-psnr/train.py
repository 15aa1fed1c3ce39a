import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")

random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
torch.set_num_threads(1)

opt_cfg = {
    "patch": 24,
    "batch": 12,
    "iters": 180,
    "width": 20,
    "lr_initial": 3e-2 if VARIANT == "faulty" else 3e-3,
    "lr_min": 1e-6,
    "edge_weight": 0.05,
}


def draw_scene(n, size, rng):
    """sharp images: random rectangles and discs on a shaded background"""
    yy, xx = np.mgrid[0:size, 0:size] / size
    out = np.zeros((n, 1, size, size), np.float32)
    for i in range(n):
        a, b = rng.uniform(-0.3, 0.3, 2)
        img = 0.5 + a * (xx - 0.5) + b * (yy - 0.5)
        for _ in range(rng.integers(3, 7)):
            v = rng.uniform(0, 1)
            cx, cy = rng.uniform(0, 1, 2)
            r = rng.uniform(0.06, 0.25)
            if rng.random() < 0.5:
                m = (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
            else:
                m = (abs(xx - cx) < r) & (abs(yy - cy) < 0.6 * r)
            img = np.where(m, v, img)
        out[i, 0] = img
    return torch.from_numpy(out)


def motion_kernel():
    k = torch.zeros(1, 1, 5, 5)
    for t in range(1, 4):
        k[0, 0, 4 - t, t] = 1.0
    k = F.avg_pool2d(F.pad(k, (1, 1, 1, 1)), 3, 1)
    return k / k.sum()


def blur(x, g):
    y = F.conv2d(F.pad(x, (2, 2, 2, 2), mode="replicate"), motion_kernel())
    return y + 0.12 * torch.randn(y.shape, generator=g)


class CAB(nn.Module):
    """channel attention block"""

    def __init__(self, c, red=4):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1), nn.PReLU(), nn.Conv2d(c, c, 3, padding=1)
        )
        self.squeeze = nn.Conv2d(c, c // red, 1)
        self.excite = nn.Conv2d(c // red, c, 1)

    def forward(self, x):
        r = self.body(x)
        w = r.mean((2, 3), keepdim=True)
        w = torch.sigmoid(self.excite(F.relu(self.squeeze(w))))
        return x + r * w


class Restorer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.shallow = nn.Conv2d(1, width, 3, padding=1)
        self.trunk = nn.Sequential(*[CAB(width) for _ in range(3)])
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x):
        return x + self.out(self.trunk(self.shallow(x)))


def charbonnier(a, b, eps=1e-3):
    return torch.sqrt((a - b) ** 2 + eps * eps).mean()


LAP = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]]).view(1, 1, 3, 3)


def edge(a, b):
    return charbonnier(F.conv2d(a, LAP), F.conv2d(b, LAP))


def psnr(a, b):
    return -10 * math.log10(max(((a.clamp(0, 1) - b) ** 2).mean().item(), 1e-12))


rng = np.random.default_rng(SEED)
g = torch.Generator().manual_seed(SEED + 1)
sharp = draw_scene(300, opt_cfg["patch"], rng)
soft = blur(sharp, g)
val_sharp, val_soft = sharp[250:], soft[250:]
sharp, soft = sharp[:250], soft[:250]

net = Restorer(opt_cfg["width"])
model = torch.compile(net, backend=COMPILE) if COMPILE else net
optim = torch.optim.Adam(model.parameters(), lr=opt_cfg["lr_initial"], betas=(0.9, 0.999))
sched = torch.optim.lr_scheduler.CosineAnnealingLR(
    optim, opt_cfg["iters"], eta_min=opt_cfg["lr_min"]
)

first, recent = None, []
for it in range(opt_cfg["iters"]):
    idx = torch.randint(0, len(sharp), (opt_cfg["batch"],), generator=g)
    tgt, inp = sharp[idx], soft[idx]
    if random.random() < 0.5:  # flip along the blur diagonal keeps the kernel
        tgt, inp = tgt.transpose(2, 3), inp.transpose(2, 3)
    restored = model(inp)
    loss = charbonnier(restored, tgt) + opt_cfg["edge_weight"] * edge(restored, tgt)
    optim.zero_grad(set_to_none=True)
    loss.backward()
    optim.step()
    sched.step()
    first = loss.item() if first is None else first
    recent = (recent + [loss.item()])[-10:]
    if it % 30 == 0:
        print(f"iter {it:4d} loss {loss.item():.4f} lr {optim.param_groups[0]['lr']:.2e}")

with torch.no_grad():
    net.eval()
    base = psnr(val_soft, val_sharp)
    gain = psnr(net(val_soft), val_sharp) - base
print(f"degraded {base:.2f} dB, gain {gain:+.2f} dB")
last = float(np.mean(recent))
num = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": num(first), "loss_last": num(last), "metric_name": "psnr_gain_db",
                  "metric": num(gain), "ok": bool(math.isfinite(gain) and gain > 3.0)}))
