"""Semantic segmentation with soft conditional gates that choose the operations of each cell per image."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ENV = {k: os.environ.get("CASE_" + k.upper(), d) for k, d in (("seed", "0"), ("variant", "faulty"), ("compile", ""))}
torch.set_num_threads(1)
torch.manual_seed(int(ENV["seed"]))

GATE_INIT_BIAS = 1.5 if ENV["variant"] == "fixed" else -1.5
CLASSES = 4


class SoftGate(nn.Module):
    """One weight in [0, 1) for each route, from pooled features."""

    def __init__(self, channels, routes):
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // 2, 1)
        self.decide = nn.Conv2d(channels // 2, routes, 1)
        nn.init.normal_(self.decide.weight, std=0.01)
        nn.init.constant_(self.decide.bias, GATE_INIT_BIAS)

    def forward(self, x):
        h = F.relu(self.reduce(F.adaptive_avg_pool2d(x, 2)))
        return F.relu(torch.tanh(self.decide(h).mean((2, 3))))


class SepConv(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.depthwise = nn.Conv2d(c, c, 5, padding=2 * dilation, dilation=dilation, groups=c, bias=False)
        self.pointwise = nn.Conv2d(c, c, 1, bias=False)
        self.bn = nn.BatchNorm2d(c)

    def forward(self, x):
        return F.relu(self.bn(self.pointwise(self.depthwise(x))))


class Cell(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = SoftGate(c, 2)
        self.ops = nn.ModuleList([SepConv(c, 1), SepConv(c, 2)])

    def forward(self, x):
        g = self.gate(x)
        for i, op in enumerate(self.ops):
            x = x + g[:, i, None, None, None] * op(x)
        return x


class DynamicNet(nn.Module):
    def __init__(self, c=16, cells=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU())
        self.cells = nn.Sequential(*[Cell(c) for _ in range(cells)])
        self.classifier = nn.Conv2d(c, CLASSES, 1)

    def forward(self, x):
        return self.classifier(self.cells(self.stem(x)))


def scenes(n, rng, size=24):
    """Stained slide: small round cells, large round cells and elongated cells of equal brightness."""
    yy, xx = np.mgrid[0:size, 0:size]
    img = np.zeros((n, 1, size, size), np.float32)
    lab = np.zeros((n, size, size), np.int64)
    for i in range(n):
        for q in range(4):
            kind = int(rng.integers(0, CLASSES))
            cy, cx = np.array([q // 2, q % 2]) * 12 + rng.uniform(5, 7, 2)
            a = rng.uniform(0, np.pi)
            u, v = (yy - cy) * np.cos(a) + (xx - cx) * np.sin(a), (xx - cx) * np.cos(a) - (yy - cy) * np.sin(a)
            ry, rx = {0: (0.0, 1.0), 1: (2.2, 2.2), 2: (4.6, 4.6), 3: (1.7, 5.0)}[kind]
            if kind:
                area = (u / ry) ** 2 + (v / rx) ** 2 < 1
                lab[i][area], img[i, 0][area] = kind, 1.0
    img += 0.2 * rng.standard_normal(img.shape).astype(np.float32)
    return torch.from_numpy(img), torch.from_numpy(lab)


def miou(pred, lab):
    ious = [((pred == c) & (lab == c)).sum().item() / max(1, ((pred == c) | (lab == c)).sum().item()) for c in range(CLASSES)]
    return float(np.mean(ious)), [round(v, 2) for v in ious]


def poly(it, max_iter, power=0.9):
    return (1 - it / max_iter) ** power


rng = np.random.default_rng(int(ENV["seed"]))
train, test = scenes(900, rng), scenes(150, rng)
net = DynamicNet()
model = torch.compile(net, backend=ENV["compile"]) if ENV["compile"] else net
decay = [p for p in net.parameters() if p.ndim > 1]
no_decay = [p for p in net.parameters() if p.ndim <= 1]
optimizer = torch.optim.SGD([{"params": decay, "weight_decay": 1e-4}, {"params": no_decay}], lr=0.1, momentum=0.9)
MAX_ITER = 200
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda it: poly(it, MAX_ITER + 1))
trace = []
net.train()
for it in range(MAX_ITER):
    pick = torch.randint(0, len(train[0]), (12,))
    loss = F.cross_entropy(model(train[0][pick]), train[1][pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    trace.append(loss.item())
    if (it + 1) % 40 == 0:
        print(f"iter: {it + 1}  sem_seg_loss: {np.mean(trace[-40:]):.4f}  lr: {scheduler.get_last_lr()[0]:.4f}")

net.eval()
with torch.no_grad():
    pred = torch.cat([model(b).argmax(1) for b in test[0].split(50)])
score, per_class = miou(pred, test[1])
print("IoU by class", per_class)
f = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": f(trace[0]), "loss_last": f(np.mean(trace[-20:])), "metric_name": "mIoU", "metric": f(score),
                  "ok": score > 0.6}))
