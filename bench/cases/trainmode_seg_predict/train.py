import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)
torch.set_num_threads(1)

S = 32


def render(n, kind=None):
    """Satellite-like tiles: dry soil, fields and (sometimes) water. Mask marks water."""
    imgs = np.zeros((n, 3, S, S), np.float32)
    masks = np.zeros((n, S, S), np.float32)
    yy, xx = np.mgrid[:S, :S]
    for i in range(n):
        k = rng.integers(0, 3) if kind is None else kind
        img = np.ones((3, S, S), np.float32) * np.array([.55, .45, .3], np.float32)[:, None, None]
        img += 0.1 * np.sin(xx * rng.uniform(.2, .9) + yy * rng.uniform(.2, .9))
        if k == 0:
            m = np.zeros((S, S), bool)
        elif k == 1:
            cy, cx, r = rng.uniform(8, 24), rng.uniform(8, 24), rng.uniform(4, 9)
            m = (yy - cy) ** 2 + ((xx - cx) * rng.uniform(.7, 1.3)) ** 2 < r * r
        else:
            m = (xx + yy * rng.uniform(-.3, .3)) > rng.uniform(2, 12)
        img[:, m] = np.array([.3, .42, .42], np.float32)[:, None]
        imgs[i] = img + 0.06 * rng.standard_normal(img.shape)
        masks[i] = m
    return torch.from_numpy(imgs), torch.from_numpy(masks)


class ConvBNReLU(nn.Sequential):
    def __init__(self, cin, cout, stride=1):
        super().__init__(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class TinyUnet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.enc1 = ConvBNReLU(3, w)
        self.enc2 = ConvBNReLU(w, 2 * w, 2)
        self.enc3 = ConvBNReLU(2 * w, 4 * w, 2)
        self.up2 = ConvBNReLU(6 * w, 2 * w)
        self.up1 = ConvBNReLU(3 * w, w)
        self.segmentation_head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(a)
        c = self.enc3(b)
        d = self.up2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        e = self.up1(torch.cat([F.interpolate(d, scale_factor=2.0), a], 1))
        return self.segmentation_head(e).squeeze(1)


def dice_loss(logits, target, eps=1.0):
    p = logits.sigmoid()
    inter = (p * target).sum((1, 2))
    return 1 - ((2 * inter + eps) / (p.sum((1, 2)) + target.sum((1, 2)) + eps)).mean()


def iou(pred, target):
    inter = (pred & target).sum().item()
    union = (pred | target).sum().item()
    return 1.0 if union == 0 else inter / union


@torch.no_grad()
def predict_one(model, image):
    return model(image.unsqueeze(0))[0].sigmoid() > 0.5


net = TinyUnet()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
X, Y = render(256)
hist = []
model.train()
for epoch in range(12):
    perm = torch.randperm(len(X))
    for k in range(0, len(X), 16):
        idx = perm[k:k + 16]
        x, y = X[idx], Y[idx]
        if torch.rand(()) < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        logits = model(x)
        loss = F.binary_cross_entropy_with_logits(logits, y) + 0.5 * dice_loss(logits, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        hist.append(loss.item())
    if epoch % 3 == 0:
        print(f"epoch {epoch} train loss {np.mean(hist[-16:]):.4f}")

xt, yt = render(60)
if VARIANT == "fixed":
    model.eval()
scores = [iou(predict_one(model, im), m > 0.5) for im, m in zip(xt, yt)]
miou = float(np.mean(scores))
print(f"mean IoU over {len(scores)} single-image predictions: {miou:.3f} (min {min(scores):.3f})")
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-16:])), "metric_name": "mean_iou",
                  "metric": miou, "ok": miou > 0.9}))
