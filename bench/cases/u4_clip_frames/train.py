import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

ACTIONS = {"swipe_left": (-1, 0), "swipe_right": (1, 0), "push_up": (0, -1), "pull_down": (0, 1)}
SIZE, LONG = 14, 12


def render_video(action, rng):
    """LONG frames of a blurry hand moving over a noisy background (wraps around)."""
    vx, vy = list(ACTIONS.values())[action]
    speed = rng.uniform(0.7, 1.2)
    x0, y0 = rng.uniform(0, SIZE, 2)
    g = np.arange(SIZE)
    bg = 0.15 * rng.standard_normal((SIZE, SIZE))
    frames = []
    for t in range(LONG):
        dx = np.abs(g - (x0 + vx * speed * t) % SIZE)
        dy = np.abs(g - (y0 + vy * speed * t) % SIZE)
        dx, dy = np.minimum(dx, SIZE - dx), np.minimum(dy, SIZE - dy)
        blob = np.exp(-(dy[:, None] ** 2 + dx[None, :] ** 2) / 4.0)
        frames.append(bg + blob + 0.1 * rng.standard_normal((SIZE, SIZE)))
    return np.stack(frames).astype(np.float32)


class ClipDataset(Dataset):
    def __init__(self, n, seed, clip_len=6, jitter=True):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(ACTIONS), n)
        self.store = {f"vid{i:04d}/{t:03d}": f for i in range(n)
                      for t, f in enumerate(render_video(int(self.labels[i]), rng))}
        self.clip_len, self.jitter = clip_len, jitter

    def __len__(self):
        return len(self.labels)

    def sample_indices(self):
        last = LONG - self.clip_len
        start = int(torch.randint(last + 1, (1,))) if self.jitter else last // 2
        return list(range(start, start + self.clip_len))

    def __getitem__(self, i):
        frame_ids = self.sample_indices()
        clip = []
        for k in frame_ids:
            name = f"vid{i:04d}/{k:03d}" if VARIANT == "fixed" else f"vid{i:04d}/{frame_ids[0]:03d}"
            clip.append(torch.from_numpy(self.store[name]))
        return torch.stack(clip).unsqueeze(0), int(self.labels[i])


class R2Plus1D(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.spatial = nn.Conv3d(1, w, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))
        self.temporal = nn.Conv3d(w, 2 * w, (3, 1, 1), padding=(1, 0, 0))
        self.bn1 = nn.BatchNorm3d(2 * w)
        self.mix = nn.Conv3d(2 * w, 2 * w, (2, 3, 3), padding=(0, 1, 1))
        self.bn2 = nn.BatchNorm3d(2 * w)
        self.cls = nn.Linear(2 * w, len(ACTIONS))

    def forward(self, v):
        h = F.relu(self.bn1(self.temporal(self.spatial(v))))
        h = F.relu(self.bn2(self.mix(h)))
        return self.cls(h.mean((2, 3, 4)))


def accuracy(net, loader):
    net.eval()
    hits = n = 0
    with torch.no_grad():
        for v, y in loader:
            hits += (net(v).argmax(1) == y).sum().item()
            n += len(y)
    net.train()
    return hits / n


train_dl = DataLoader(ClipDataset(480, SEED), batch_size=32, shuffle=True, drop_last=True)
test_dl = DataLoader(ClipDataset(160, 777 + SEED, jitter=False), batch_size=80)
net = R2Plus1D()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
EPOCHS = 12
opt = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)

log = []
for epoch in range(EPOCHS):
    for clips, labels in train_dl:
        loss = F.cross_entropy(model(clips), labels, label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.append(loss.item())
    sched.step()
    if epoch % 3 == 2:
        print(f"epoch {epoch + 1}: loss {np.mean(log[-15:]):.3f}, test top-1 {accuracy(net, test_dl):.3f}")

top1 = accuracy(net, test_dl)
num = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": num(log[0]), "loss_last": num(np.mean(log[-15:])), "metric_name": "test_top1",
                  "metric": num(top1), "ok": bool(top1 > 0.8)}))
