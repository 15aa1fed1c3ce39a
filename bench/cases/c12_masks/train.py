"""Interactive-style organ segmentation: image + click map -> mask, trained with BCE + dice."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("CASE_VARIANT", "faulty") == "fixed"
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)
FULL, NET = 48, 16


def raw_case(g):
    """8-bit image and 8-bit mask as they come from disk."""
    yy, xx = np.mgrid[0:FULL, 0:FULL]
    cy, cx = g.uniform(14, 34, 2)
    ry, rx = g.uniform(5, 12, 2)
    body = ((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1
    img = 90 + 60 * body + 18 * g.normal(size=(FULL, FULL))
    decoy = np.hypot(yy - g.uniform(4, 44), xx - g.uniform(4, 44)) < 5
    img[decoy & ~body] += 55
    mask = np.where(body, 238, 0)
    return np.clip(img, 0, 255).astype(np.uint8), mask.astype(np.uint8), (cy, cx)


def shrink(a):
    t = torch.from_numpy(a).float()[None, None]
    return F.interpolate(t, (NET, NET), mode="area")[0].round().to(torch.uint8)


class CaseDataset(torch.utils.data.Dataset):
    def __init__(self, n, seed, reference=False):
        g = np.random.default_rng(seed)
        self.items, self.reference = [raw_case(g) for _ in range(n)], reference

    def __len__(self):
        return len(self.items)

    def load_mask(self, mask):
        small = shrink(mask)
        if FIXED or self.reference:
            return (small > 127).float()
        return (small // 255).float()

    def __getitem__(self, k):
        img, mask, (cy, cx) = self.items[k]
        yy, xx = torch.meshgrid(torch.arange(NET), torch.arange(NET), indexing="ij")
        s = FULL / NET
        click = torch.exp(-((yy - cy / s) ** 2 + (xx - cx / s) ** 2) / 4)[None].float()
        image = (shrink(img).float() - 110) / 40
        return torch.cat([image, click]), self.load_mask(mask)


class PromptSeg(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.image_encoder = nn.Sequential(nn.Conv2d(2, c, 3, padding=1), nn.GroupNorm(4, c), nn.GELU(),
                                           nn.Conv2d(c, c, 3, padding=2, dilation=2), nn.GroupNorm(4, c), nn.GELU())
        self.mask_decoder = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.GELU(), nn.Conv2d(c, 1, 1))

    def forward(self, x):
        return self.mask_decoder(self.image_encoder(x))


def criterion(logits, y):
    p = logits.sigmoid().flatten(1)
    t = y.flatten(1)
    dice = 1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)
    return F.binary_cross_entropy_with_logits(logits, y) + dice.mean()


train = torch.utils.data.DataLoader(CaseDataset(400, SEED), batch_size=20, shuffle=True)
test = torch.utils.data.DataLoader(CaseDataset(100, SEED + 500, reference=True), batch_size=100)
model = PromptSeg()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
hist = []
for epoch in range(8):
    model.train()
    for x, y in train:
        loss = criterion(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        hist.append(loss.item())
    print(f"epoch {epoch} loss {np.mean(hist[-20:]):.4f}")
model.eval()
x, y = next(iter(test))
with torch.no_grad():
    pred = (net(x) > 0).float()
iou = ((pred * y).sum((1, 2, 3)) / ((pred + y) > 0).float().sum((1, 2, 3)).clamp(min=1)).mean().item()
print(json.dumps({"loss_first": hist[0], "loss_last": hist[-1], "metric_name": "test_iou", "metric": iou, "ok": iou > 0.75}))
