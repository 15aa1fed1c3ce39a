"""Segment bright discs in noisy images with a two-level U-Net."""
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
S = 24


def discs(n):
    yy, xx = torch.meshgrid(torch.arange(S), torch.arange(S), indexing="ij")
    mask = torch.zeros(n, S, S)
    for _ in range(2):
        cy, cx = torch.randint(3, S - 3, (2, n, 1, 1))
        r = torch.randint(2, 4, (n, 1, 1))
        mask = torch.maximum(mask, ((yy - cy) ** 2 + (xx - cx) ** 2 <= r ** 2).float())
    image = 0.9 * mask + 0.5 * torch.randn(n, S, S)
    return image.unsqueeze(1), mask.unsqueeze(1)


def double_conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, c=10):
        super().__init__()
        self.enc1 = double_conv(1, c)
        self.enc2 = double_conv(c, 2 * c)
        self.mid = double_conv(2 * c, 2 * c)
        self.dec2 = double_conv(4 * c, c)
        self.dec1 = double_conv(2 * c, c)
        self.head = nn.Conv2d(c, 1, 1)
        self.act = nn.Identity() if VARIANT == "fixed" else nn.Sigmoid()

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        m = self.mid(F.max_pool2d(e2, 2))
        d2 = self.dec2(torch.cat([F.interpolate(m, scale_factor=2), e2], 1))
        d1 = self.dec1(torch.cat([F.interpolate(d2, scale_factor=2), e1], 1))
        return self.act(self.head(d1))


model = UNet()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
val_x, val_y = discs(100)
history = []
model.train()
for step in range(150):
    x, y = discs(14)
    loss = criterion(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    if step % 25 == 0:
        print(f"step {step} bce {loss.item():.4f}")
model.eval()
with torch.no_grad():
    pred = (torch.sigmoid(net(val_x)) > 0.5).float()
dice = (2 * (pred * val_y).sum() / (pred.sum() + val_y.sum() + 1e-6)).item()
print(json.dumps({"loss_first": history[0], "loss_last": history[-1], "metric_name": "dice", "metric": dice, "ok": dice > 0.7}))
