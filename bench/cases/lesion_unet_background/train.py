import json, math, os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

SIZE = 32


def make_scans(n):
    """Grey scans with textured tissue; zero to two small lesions among a few benign spots."""
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    imgs = np.zeros((n, 1, SIZE, SIZE), np.float32)
    masks = np.zeros((n, 1, SIZE, SIZE), np.float32)
    for i in range(n):
        base = 0.2 * np.sin(xx / rng.uniform(3, 7) + rng.uniform(0, 6)) * np.cos(yy / rng.uniform(3, 7))
        lesions = rng.integers(0, 3)
        for k in range(lesions + 3):
            cx, cy, r = rng.uniform(4, SIZE - 4), rng.uniform(4, SIZE - 4), rng.uniform(1.6, 2.8)
            spot = (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
            level = rng.normal(1.3, 0.25) if k < lesions else rng.normal(0.95, 0.3)
            base = base + level * spot
            if k < lesions:
                masks[i, 0][spot] = 1
        imgs[i, 0] = base + 0.3 * rng.normal(size=(SIZE, SIZE))
    return torch.from_numpy(imgs), torch.from_numpy(masks)


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.ReLU(),
                         nn.Conv2d(b, b, 3, padding=1), nn.GroupNorm(4, b), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.enc1, self.enc2, self.mid = block(1, c), block(c, 2 * c), block(2 * c, 4 * c)
        self.up2, self.dec2 = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), block(4 * c, 2 * c)
        self.up1, self.dec1 = nn.ConvTranspose2d(2 * c, c, 2, 2), block(2 * c, c)
        self.head = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        m = self.mid(F.max_pool2d(e2, 2))
        d2 = self.dec2(torch.cat([self.up2(m), e2], 1))
        d1 = self.dec1(torch.cat([self.up1(d2), e1], 1))
        return self.head(d1)


x, y = make_scans(400)
xv, yv = make_scans(80)
share = y.mean().item()
print(f"lesion share of all pixels: {share:.4f}")
weight = torch.tensor(12.0) if VARIANT == "fixed" else None
criterion = nn.BCEWithLogitsLoss(pos_weight=weight)
net = UNet()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

history = []
for step in range(200):
    pick = torch.randint(0, len(x), (8,))
    loss = criterion(model(x[pick]), y[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    if (step + 1) % 40 == 0:
        with torch.no_grad():
            p = net(xv) > 0
        print(f"step {step + 1} loss {np.mean(history[-40:]):.4f} pixel acc {(p == yv.bool()).float().mean():.4f}")

with torch.no_grad():
    p = (net(xv) > 0).float()
recall = ((p * yv).sum() / yv.sum()).item()
dice = (2 * (p * yv).sum() / (p.sum() + yv.sum() + 1e-6)).item()
print(f"recall {recall:.3f} dice {dice:.3f}")
print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-10:])), "metric_name": "lesion_recall",
                  "metric": recall, "ok": bool(recall > 0.6 and dice > 0.25)}))
