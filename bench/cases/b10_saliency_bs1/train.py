"""Salient object masks, small encoder-decoder with deep supervision; one image per step (as on a small GPU)."""
import os, json, math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED + 21)
torch.set_num_threads(1)
SIZE = 24


def scene():
    yy, xx = np.mgrid[:SIZE, :SIZE]
    bg = rng.uniform(-1, 1, 3)[:, None, None] + 0.3 * np.sin(rng.uniform(0.2, 0.8) * xx + rng.uniform(0, 6))[None]
    img = np.broadcast_to(bg, (3, SIZE, SIZE)).copy()
    mask = np.zeros((SIZE, SIZE))
    r = rng.uniform(3.0, 7.5)
    cy, cx = rng.uniform(6, SIZE - 6, 2)
    a = rng.uniform(0.7, 1.3)
    obj = ((yy - cy) * a) ** 2 + ((xx - cx) / a) ** 2 < r ** 2
    mask[obj] = 1
    col = bg.mean((1, 2)) + rng.choice([-1, 1], 3) * rng.uniform(0.5, 1.2, 3)
    img[:, obj] = col[:, None]
    # thin distractor line of the same colour
    k = rng.integers(0, SIZE)
    img[:, k, :][:, mask[k] == 0] = col[:, None]
    img = img * rng.uniform(0.5, 1.5) + rng.normal(0, 0.15, img.shape)
    return img.astype(np.float32), mask.astype(np.float32)


def dataset(n):
    a, b = zip(*[scene() for _ in range(n)])
    return torch.tensor(np.stack(a)), torch.tensor(np.stack(b)).unsqueeze(1)


def norm(ch):
    return nn.GroupNorm(4, ch) if VARIANT == "fixed" else nn.BatchNorm2d(ch)


class ConvUnit(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv2d(i, o, 3, padding=1, bias=False), norm(o), nn.ReLU(inplace=True))


class SaliencyNet(nn.Module):
    def __init__(self, w=(16, 24, 32, 40)):
        super().__init__()
        self.enc = nn.ModuleList()
        c = 3
        for k in w:
            self.enc.append(nn.Sequential(ConvUnit(c, k), ConvUnit(k, k)))
            c = k
        self.bridge = ConvUnit(c, c)
        self.dec, self.side = nn.ModuleList(), nn.ModuleList()
        for k in reversed(w[:-1]):
            self.dec.append(ConvUnit(c + k, k))
            self.side.append(nn.Conv2d(k, 1, 1))
            c = k

    def forward(self, x):
        skips = []
        for i, stage in enumerate(self.enc):
            x = stage(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        x = self.bridge(x)
        outs = []
        for d, s, skip in zip(self.dec, self.side, reversed(skips[:-1])):
            x = d(torch.cat([F.interpolate(x, size=skip.shape[-2:]), skip], 1))
            outs.append(F.interpolate(s(x), size=(SIZE, SIZE), mode="bilinear", align_corners=False))
        return outs


def hybrid_loss(logits, m):
    p = torch.sigmoid(logits)
    inter = (p * m).sum((1, 2, 3))
    iou = 1 - (inter + 1) / ((p + m - p * m).sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, m) + iou.mean()


def main():
    xtr, ytr = dataset(200)
    xte, yte = dataset(80)
    model = SaliencyNet()
    net = torch.compile(model, backend=COMPILE) if COMPILE else model
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    for epoch in range(2):
        model.train()
        for i in torch.randperm(200).tolist():
            outs = net(xtr[i:i + 1])
            loss = sum(hybrid_loss(o, ytr[i:i + 1]) for o in outs) / len(outs)
            opt.zero_grad(); loss.backward(); opt.step()
            losses.append(loss.item())
            if len(losses) % 100 == 0:
                print(f"iter {len(losses)} loss {np.mean(losses[-50:]):.3f}")
    model.eval()
    with torch.no_grad():
        pred = torch.cat([model(xte[i:i + 1])[-1] for i in range(len(xte))]) > 0
        m = yte > 0.5
        iou = ((pred & m).sum((1, 2, 3)) / (pred | m).sum((1, 2, 3)).clamp(min=1)).mean().item()
    fin = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(np.mean(losses[-50:])), "metric_name": "test_iou",
                      "metric": iou, "ok": bool(iou > 0.6)}))


main()
