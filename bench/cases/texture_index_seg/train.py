# Land-cover style segmentation: small U-Net, seven classes, patches of synthetic imagery.
import json
import math
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

seed = int(os.environ.get("CASE_SEED", 0))
variant = os.environ.get("CASE_VARIANT", "faulty")
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(seed)
rng = np.random.default_rng(100 + seed)

CLASSES = ["water", "forest", "crop", "urban", "bare", "snow", "road"]
C, S = len(CLASSES), 32
COLOUR = np.array([[.1, .2, .5], [.1, .4, .1], [.6, .6, .2], [.5, .3, .3], [.6, .5, .4], [.9, .9, .9], [.3, .3, .35]])
COLOUR = COLOUR[np.random.default_rng(9).permutation(C)]


def scene():
    pts, kind = rng.uniform(0, S, (9, 2)), rng.integers(0, C, 9)
    yy, xx = np.mgrid[:S, :S]
    near = ((yy[..., None] - pts[:, 0]) ** 2 + (xx[..., None] - pts[:, 1]) ** 2).argmin(-1)
    mask = kind[near]
    img = COLOUR[mask] + 0.1 * rng.standard_normal((S, S, 3))
    return img.transpose(2, 0, 1).astype(np.float32), mask


def make(n):
    a = [scene() for _ in range(n)]
    x = torch.from_numpy(np.stack([i for i, _ in a]))
    return (x - 0.42) / 0.25, torch.from_numpy(np.stack([m for _, m in a]))


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, n_classes, w=12):
        super().__init__()
        self.d1, self.d2, self.mid = block(3, w), block(w, 2 * w), block(2 * w, 4 * w)
        self.up2, self.up1 = block(6 * w, 2 * w), block(3 * w, w)
        self.head = nn.Conv2d(w, n_classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([b, F.interpolate(c, scale_factor=2.0)], 1))
        a = self.up1(torch.cat([a, F.interpolate(b, scale_factor=2.0)], 1))
        return self.head(a)


index = torch.arange(C, dtype=torch.float32).view(1, C, 1, 1)


def criterion(logits, mask):
    if variant == "fixed":
        return F.cross_entropy(logits, mask)
    pred = (logits.softmax(1) * index).sum(1)
    return F.mse_loss(pred, mask.float())


@torch.no_grad()
def mean_iou(net, x, m):
    net.eval()
    p = net(x).argmax(1)
    net.train()
    ious = [((p == k) & (m == k)).sum() / ((p == k) | (m == k)).sum().clamp(min=1) for k in range(C)]
    return torch.stack(ious).mean().item(), (p == m).float().mean().item()


train_x, train_m = make(320)
test_x, test_m = make(60)
unet = UNet(C)
net = torch.compile(unet, backend=backend) if backend else unet
optimizer = torch.optim.RMSprop(unet.parameters(), lr=1e-3, momentum=0.5)

losses = []
for epoch in range(10):
    for idx in torch.randperm(len(train_x)).split(16):
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(net(train_x[idx]), train_m[idx])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    iou, acc = mean_iou(net, test_x, test_m)
    print(f"Epoch {epoch + 1}/10  loss {np.mean(losses[-20:]):.4f}  mIoU {iou:.3f}  pixel acc {acc:.3f}")

fin = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(losses[-1]), "metric_name": "test_mean_iou", "metric": iou,
                  "ok": iou > 0.7}))
