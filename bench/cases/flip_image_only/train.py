"""Segment blobs with random flips as augmentation."""
import json
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
random.seed(SEED)
torch.set_num_threads(1)
S = 20


class Blobs(Dataset):
    def __init__(self, n, augment):
        yy, xx = torch.meshgrid(torch.arange(S), torch.arange(S), indexing="ij")
        cy, cx = torch.randint(4, S - 4, (2, n, 1, 1))
        a, b = torch.randint(3, 6, (2, n, 1, 1))
        self.mask = (((yy - cy) / a) ** 2 + ((xx - cx) / b) ** 2 <= 1).float().unsqueeze(1)
        self.image = self.mask * 1.2 + 0.4 * torch.randn(n, 1, S, S)
        self.augment = augment

    def __len__(self):
        return len(self.mask)

    def __getitem__(self, i):
        image, mask = self.image[i], self.mask[i]
        if self.augment:
            for axis in (1, 2):
                if random.random() < 0.5:
                    image = image.flip(axis)
                    if VARIANT == "fixed":
                        mask = mask.flip(axis)
        return image, mask


class Dilated(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.inp = nn.Conv2d(1, c, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(3, c) for _ in range(3)])
        self.convs = nn.ModuleList([nn.Conv2d(c, c, 3, padding=d, dilation=d) for d in (1, 2, 3)])
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        h = F.relu(self.inp(x))
        for norm, conv in zip(self.norms, self.convs):
            h = h + F.relu(norm(conv(h)))
        return self.out(h)


train = DataLoader(Blobs(600, True), batch_size=20, shuffle=True)
val = Blobs(120, False)
model = Dilated()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
losses = []
for epoch in range(6):
    for x, y in train:
        loss = F.binary_cross_entropy_with_logits(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {sum(losses[-30:]) / 30:.4f}")
with torch.no_grad():
    p = (net(val.image) > 0).float()
iou = ((p * val.mask).sum() / ((p + val.mask) > 0).sum()).item()
print(json.dumps({"loss_first": losses[0], "loss_last": sum(losses[-30:]) / 30, "metric_name": "val_iou", "metric": iou,
                  "ok": iou > 0.75}))
