# flower / leaf / bark / soil patches, classifier trained from two image archives one after the other
import json
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

MODE = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)

PALETTE = np.array([[190, 70, 80], [80, 150, 60], [120, 90, 70], [95, 80, 130], [70, 95, 160]], np.float32)
MEAN = torch.tensor([0.44, 0.38, 0.39]).view(3, 1, 1)
STD = torch.tensor([0.2, 0.2, 0.2]).view(3, 1, 1)


class Patches(Dataset):
    def __init__(self, n, seed, reader="pil"):
        r = np.random.default_rng(seed)
        self.label = r.integers(0, len(PALETTE), n)
        tint = PALETTE[self.label][:, None, None, :] + r.normal(0, 14, (n, 1, 1, 3))
        grain = r.normal(0, 22, (n, 16, 16, 3)) + 18 * np.sin(np.arange(16) * r.uniform(0.4, 1.5, (n, 1)))[:, None, :, None]
        self.pixels = np.clip(tint + grain, 0, 255).astype(np.uint8)
        if reader == "cv2":
            self.pixels = self.pixels[..., ::-1].copy()
        self.reader = reader

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        img = self.pixels[i]
        if MODE == "fixed" and self.reader == "cv2":
            img = img[..., ::-1].copy()
        img = torch.from_numpy(img).permute(2, 0, 1).float() / 255
        return (img - MEAN) / STD, int(self.label[i])


class PatchNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.GroupNorm(4, 24), nn.ReLU())
        self.head = nn.Linear(24, len(PALETTE))

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


archives = [Patches(2400, SEED + 10, "pil"), Patches(2400, SEED + 20, "cv2")]
held_out = Patches(500, SEED + 30, "pil")
net = PatchNet()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def validate():
    hits = 0
    with torch.no_grad():
        for x, y in DataLoader(held_out, batch_size=250):
            hits += (net(x).argmax(1) == y).sum().item()
    return hits / len(held_out)


losses, step = [], 0
for part, archive in enumerate(archives):
    for epoch in range(2):
        for x, y in DataLoader(archive, batch_size=32, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            step += 1
        print(f"archive {part} epoch {epoch} step {step} loss {np.mean(losses[-20:]):.3f} val {validate():.3f}")

acc = validate()
print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-10:])), "metric_name": "val_accuracy",
                  "metric": acc, "ok": acc > 0.85}))
