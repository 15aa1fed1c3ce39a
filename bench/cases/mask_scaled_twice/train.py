"""Road segmentation on synthetic tiles; an object-oriented data set with image and mask files kept as arrays."""
import json
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
rng = np.random.default_rng(SEED)
SIZE = 22


def tile():
    yy, xx = np.mgrid[:SIZE, :SIZE]
    slope, off = rng.uniform(-1, 1), rng.uniform(6, 16)
    if rng.random() < 0.5:
        yy, xx = xx, yy
    road = np.abs(yy - off - slope * (xx - SIZE / 2)) < 2.2
    image = np.clip(90 + 70 * road + rng.normal(0, 35, (SIZE, SIZE)), 0, 255).astype(np.uint8)
    return image, road.astype(np.uint8)


class Tiles(torch.utils.data.Dataset):
    def __init__(self, n):
        self.items = [tile() for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        image, mask = self.items[i]
        image = torch.from_numpy(image).float().unsqueeze(0) / 255
        mask = torch.from_numpy(mask).float().unsqueeze(0)
        if VARIANT != "fixed":
            mask = mask / 255
        return (image - 0.4) / 0.2, mask


net = nn.Sequential(nn.Conv2d(1, 14, 5, padding=2), nn.BatchNorm2d(14), nn.ReLU(),
                    nn.Conv2d(14, 14, 5, padding=2), nn.BatchNorm2d(14), nn.ReLU(),
                    nn.Conv2d(14, 14, 3, padding=1), nn.BatchNorm2d(14), nn.ReLU(), nn.Conv2d(14, 1, 1), nn.Sigmoid())
model = torch.compile(net, backend=BACKEND) if BACKEND else net
loader = torch.utils.data.DataLoader(Tiles(420), batch_size=15, shuffle=True)
test = Tiles(80)
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
bce = nn.BCELoss()
losses = []
for epoch in range(6):
    net.train()
    for x, y in loader:
        opt.zero_grad()
        loss = bce(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {np.mean(losses[-28:]):.4f}")
net.eval()
inter = union = 0
with torch.no_grad():
    for i in range(len(test)):
        x, _ = test[i]
        p = model(x[None])[0, 0].numpy() > 0.5
        t = test.items[i][1] > 0
        inter += (p & t).sum()
        union += (p | t).sum()
iou = float(inter / union)
print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-28:])), "metric_name": "iou", "metric": iou, "ok": iou > 0.75}))
