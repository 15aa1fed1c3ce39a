# Three-class road scene segmentation: none / road / car.
import json
import os

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(seed)
np.random.seed(seed)
torch.set_num_threads(1)
H, W, NAMES = 32, 48, ("none", "road", "car")


def scene():
    lab = np.zeros((H, W), np.int64)
    y0, slope = np.random.uniform(12, 20), np.random.uniform(-.15, .15)
    yy, xx = np.mgrid[:H, :W]
    lab[yy > y0 + slope * xx] = 1
    if np.random.rand() < 0.55:
        cy, cx = np.random.randint(22, H - 3), np.random.randint(2, W - 5)
        lab[cy:cy + 2, cx:cx + 3] = 2
    shade = np.array([.65, .35, .52])[lab]
    img = np.stack([shade, shade * .95 + .02, shade * .9 + .05 * (lab == 0)])
    img = img + np.random.randn(*img.shape) * 0.11 + np.random.uniform(-.03, .03)
    return img.astype(np.float32), lab


class Scenes(torch.utils.data.Dataset):
    def __init__(self, n):
        items = [scene() for _ in range(n)]
        self.x = torch.from_numpy(np.stack([a for a, _ in items]))
        self.y = torch.from_numpy(np.stack([b for _, b in items]))
        self.x = (self.x - 0.5) / 0.2

    def __len__(self):
        return len(self.y)

    def __getitem__(self, k):
        return self.x[k], self.y[k]


class DilatedBranch(nn.Module):
    def __init__(self, cin, cout, dil):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=dil, dilation=dil)
        self.gn = nn.GroupNorm(4, cout)

    def forward(self, x):
        return F.relu(self.gn(self.conv(x)))


class CascadeNet(nn.Module):
    def __init__(self, ch=12):
        super().__init__()
        self.stem = DilatedBranch(3, ch, 1)
        self.local = nn.Sequential(DilatedBranch(ch, ch, 1), DilatedBranch(ch, ch, 1))
        self.wide = nn.Sequential(DilatedBranch(ch, ch, 3), DilatedBranch(ch, ch, 6))
        self.cls = nn.Conv2d(2 * ch, 3, 1)

    def forward(self, x):
        s = self.stem(x)
        return self.cls(torch.cat([self.local(s), self.wide(F.avg_pool2d(s, 3, 1, 1))], 1))


train_ds, test_ds = Scenes(200), Scenes(80)
freq = torch.bincount(train_ds.y.flatten(), minlength=3).float() / train_ds.y.numel()
print("pixel share", {n: round(f.item(), 4) for n, f in zip(NAMES, freq)})
weight = (1.0 / freq.clamp(min=1e-4)).pow(0.75) if variant == "fixed" else torch.ones(3)
weight = weight / weight.mean()

net = CascadeNet()
model = torch.compile(net, backend=backend) if backend else net
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
total = 14 * 10
poly = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: (1 - s / (total + 1)) ** 0.9)
loader = torch.utils.data.DataLoader(train_ds, batch_size=20, shuffle=True)
hist = []


@torch.no_grad()
def per_class_accuracy(ds):
    pred = model(ds.x).argmax(1)
    acc = [(pred[ds.y == c] == c).float().mean().item() for c in range(3)]
    return acc, (pred == ds.y).float().mean().item()


for epoch in range(14):
    for x, y in loader:
        if np.random.rand() < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        loss = F.cross_entropy(model(x), y, weight=weight)
        opt.zero_grad()
        loss.backward()
        opt.step()
        poly.step()
        hist.append(loss.item())
    if epoch % 3 == 1:
        acc, pix = per_class_accuracy(test_ds)
        print(f"epoch {epoch} loss {np.mean(hist[-10:]):.4f} pixel acc {pix:.3f} per class {[round(a, 3) for a in acc]}")

acc, pix = per_class_accuracy(test_ds)
print("final pixel accuracy %.4f, per class %s" % (pix, dict(zip(NAMES, np.round(acc, 3).tolist()))))
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-10:])), "metric_name": "mean_class_accuracy",
                  "metric": float(np.mean(acc)), "ok": bool(np.mean(acc) > 0.85)}))
