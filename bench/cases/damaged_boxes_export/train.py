"""Single-object localisation, annotations exported from a labelling tool."""
import os, json, math
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
W = 24


def export(n, seed, checked=False):
    """Images plus rows of (xmin, ymin, xmax, ymax) in pixels, as the tool wrote them."""
    r = np.random.default_rng(seed)
    imgs = r.normal(0, 0.25, (n, 1, W, W)).astype("f4")
    rows = np.zeros((n, 4))
    for i in range(n):
        w, h = r.integers(5, 13, 2)
        x0, y0 = r.integers(0, W - w), r.integers(0, W - h)
        imgs[i, 0, y0:y0 + h, x0:x0 + w] += 0.8
        rows[i] = x0, y0, x0 + w, y0 + h
    if not checked:
        for i in r.choice(np.arange(n // 4, n), 5, replace=False):
            rows[i, 2] = 65535
            rows[i, 3] = r.choice([65535, rows[i, 3]])
    return imgs, rows


class Boxes(Dataset):
    def __init__(self, imgs, rows):
        if VARIANT == "fixed":
            keep = (rows.min(1) >= 0) & (rows.max(1) <= W) & (rows[:, 2] > rows[:, 0]) & (rows[:, 3] > rows[:, 1])
            imgs, rows = imgs[keep], rows[keep]
        self.x = torch.from_numpy(imgs)
        self.y = torch.tensor(rows / W, dtype=torch.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, k):
        return self.x[k], self.y[k]


class Localiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.hidden = nn.Linear(16 * 36, 64)
        self.box = nn.Linear(64, 4)

    def forward(self, x):
        return self.box(torch.relu(self.hidden(self.features(x))))


def mean_iou(p, t):
    lo, hi = torch.maximum(p[:, :2], t[:, :2]), torch.minimum(p[:, 2:], t[:, 2:])
    inter = (hi - lo).clamp(min=0).prod(1)
    area = lambda b: (b[:, 2:] - b[:, :2]).clamp(min=0).prod(1)
    return (inter / (area(p) + area(t) - inter + 1e-6)).mean().item()


train = Boxes(*export(1600, SEED + 1))
vx, vy = export(300, SEED + 2, checked=True)
vx, vy = torch.from_numpy(vx), torch.tensor(vy / W, dtype=torch.float32)
net = Localiser()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
loss_fn = nn.MSELoss()
trace = []
for epoch in range(7):
    for x, y in DataLoader(train, batch_size=32, shuffle=True):
        loss = loss_fn(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        trace.append(loss.item())
    with torch.no_grad():
        print(f"epoch {epoch} mean loss {np.mean(trace[-50:]):.4f} median {np.median(trace[-50:]):.4f} IoU {mean_iou(net(vx), vy):.3f}")

with torch.no_grad():
    iou = mean_iou(net(vx), vy)
f = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": f(trace[0]), "loss_last": f(trace[-1]), "metric_name": "val_iou", "metric": f(iou), "ok": bool(iou > 0.55)}))
