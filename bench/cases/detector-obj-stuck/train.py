"""Single-stage grid detector for small markers on cluttered pick-and-place trays."""
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

torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

IMG, STRIDE, N_CLS = 48, 6, 2
GRID = IMG // STRIDE


def render(n, rng):
    """bright discs (class 0) and crosses (class 1) over low contrast clutter"""
    imgs = rng.normal(0.0, 0.15, (n, 1, IMG, IMG)).astype(np.float32)
    tgt = np.zeros((n, GRID, GRID, 4), np.float32)  # obj, dx, dy, cls
    yy, xx = np.mgrid[0:IMG, 0:IMG]
    for i in range(n):
        for _ in range(3):
            fx, fy = rng.uniform(0.05, 0.3, 2)
            imgs[i, 0] += 0.1 * np.sin(fx * xx + fy * yy + rng.uniform(0, 6))
        for _ in range(rng.integers(1, 4)):
            cx, cy = rng.uniform(4, IMG - 4, 2)
            gx, gy = int(cx // STRIDE), int(cy // STRIDE)
            if tgt[i, gy, gx, 0]:
                continue
            kind = int(rng.integers(N_CLS))
            if kind == 0:
                shape = (xx - cx) ** 2 + (yy - cy) ** 2 < 10
            else:
                shape = ((abs(xx - cx) < 1.2) | (abs(yy - cy) < 1.2)) & (abs(xx - cx) < 4) & (abs(yy - cy) < 4)
            imgs[i, 0][shape] += rng.uniform(0.8, 1.2)
            tgt[i, gy, gx] = (1.0, cx / STRIDE - gx, cy / STRIDE - gy, kind)
    return torch.from_numpy(imgs), torch.from_numpy(tgt)


class ConvBNAct(nn.Sequential):
    def __init__(self, cin, cout, s=1):
        super().__init__(nn.Conv2d(cin, cout, 3, s, 1, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1))


class GridHead(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.mix = ConvBNAct(ch, ch)
        self.out = nn.Conv2d(ch, 3 + N_CLS, 1)

    def forward(self, x):
        p = self.out(self.mix(x)).permute(0, 2, 3, 1)
        conf = p[..., 0]
        if VARIANT != "fixed":
            conf = torch.sigmoid(conf)
        return conf, torch.sigmoid(p[..., 1:3]), p[..., 3:]


class TrayDetector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBNAct(1, 12, 2)
        self.body = nn.Sequential(ConvBNAct(12, 24, 3), ConvBNAct(24, 32), ConvBNAct(32, 32))
        self.head = GridHead(32)

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


class DetectionLoss(nn.Module):
    def __init__(self, w_xy=2.0, w_cls=0.5):
        super().__init__()
        self.obj = nn.BCEWithLogitsLoss()
        self.w_xy, self.w_cls = w_xy, w_cls

    def forward(self, outputs, tgt):
        conf, xy, cls = outputs
        pos = tgt[..., 0] > 0
        l_obj = self.obj(conf, tgt[..., 0])
        l_xy = F.mse_loss(xy[pos], tgt[..., 1:3][pos])
        l_cls = F.cross_entropy(cls[pos], tgt[..., 3][pos].long())
        return l_obj + self.w_xy * l_xy + self.w_cls * l_cls, (l_obj.item(), l_xy.item(), l_cls.item())


@torch.no_grad()
def evaluate(model, imgs, tgt, thr=0.5):
    """F1 of detected cells with the right class"""
    model.eval()
    conf, _, cls = model(imgs)
    prob = torch.sigmoid(conf) if VARIANT == "fixed" else conf
    det = prob > thr
    truth = tgt[..., 0] > 0
    tp = (det & truth & (cls.argmax(-1) == tgt[..., 3].long())).sum().item()
    f1 = 2 * tp / max(1, det.sum().item() + truth.sum().item())
    model.train()
    return f1, det.sum().item(), truth.sum().item()


rng = np.random.default_rng(SEED)
train_x, train_y = render(640, rng)
val_x, val_y = render(160, rng)

net = TrayDetector()
if COMPILE:
    net = torch.compile(net, backend=COMPILE)
criterion = DetectionLoss()
BATCH, EPOCHS = 32, 14
total = EPOCHS * (len(train_x) // BATCH)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: min(1.0, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * s / total)))

history = []
for epoch in range(EPOCHS):
    perm = torch.randperm(len(train_x))
    for k in range(0, len(perm), BATCH):
        idx = perm[k:k + BATCH]
        xb, yb = train_x[idx], train_y[idx]
        xb = xb + 0.03 * torch.randn_like(xb)
        loss, parts = criterion(net(xb), yb)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        history.append(loss.item())
    if epoch % 3 == 0 or epoch == EPOCHS - 1:
        f1, nd, nt = evaluate(net, val_x, val_y)
        print("epoch %2d  loss %.4f  obj %.4f xy %.4f cls %.4f | F1 %.3f (%d det / %d gt)"
              % ((epoch, np.mean(history[-20:])) + parts + (f1, nd, nt)))

f1, _, _ = evaluate(net, val_x, val_y)
print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])),
                  "metric_name": "val_f1", "metric": f1, "ok": bool(f1 > 0.8)}))
