"""Per-pixel depth regression with an encoder-decoder."""
import json
import os
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
warnings.filterwarnings("ignore")
torch.manual_seed(SEED)
torch.set_num_threads(1)
S = 16


def scenes(n):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, S), torch.linspace(-1, 1, S), indexing="ij")
    a, b, c = torch.randn(3, n, 1, 1)
    depth = a * xx + b * yy + c * xx * yy
    shade = torch.sin(3 * depth)
    rgb = torch.stack([depth * 0.5 + 0.15 * torch.randn(n, S, S), shade, torch.randn(n, S, S) * 0.5], 1)
    return rgb, depth


class DepthNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.down2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.up1 = nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(32, 12, 4, stride=2, padding=1)
        self.out = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, x):
        a = F.leaky_relu(self.down1(x))
        b = F.leaky_relu(self.down2(a))
        u = F.leaky_relu(self.up1(b))
        u = F.leaky_relu(self.up2(torch.cat([u, a], 1)))
        return self.out(u)


model = DepthNet()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
losses = []
for step in range(280):
    rgb, depth = scenes(18)
    if VARIANT == "fixed":
        depth = depth.unsqueeze(1)
    loss = F.l1_loss(net(rgb), depth)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step % 40 == 0:
        print(f"step {step} l1 {loss.item():.4f}")
with torch.no_grad():
    rgb, depth = scenes(200)
    err = (net(rgb).squeeze(1) - depth).abs().mean().item() / depth.abs().mean().item()
print(json.dumps({"loss_first": losses[0], "loss_last": sum(losses[-20:]) / 20, "metric_name": "relative_l1", "metric": err, "ok": err < 0.4}))
