"""Activity recognition from wrist accelerometer windows; the loader is written so that it also runs under torchrun."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)

ACTIVITIES = {"sit": (0.0, 0.02, 0.1), "walk": (1.8, 0.5, 0.3), "stairs": (1.5, 0.6, 0.6),
              "run": (2.8, 1.2, 0.4), "cycle": (1.3, 0.35, -0.4), "brush": (3.6, 0.6, -0.1)}
FS, WIN = 20, 64


def record(name, n_windows):
    """One recording of one person and activity, cut into windows of 3.2 s."""
    freq, amp, tilt = ACTIVITIES[name]
    t = np.arange(n_windows * WIN) / FS
    f = freq * (1 + 0.08 * np.sin(0.05 * t + np.random.rand() * 6))
    phase = 2 * np.pi * np.cumsum(f) / FS
    xyz = np.stack([amp * np.sin(phase), 0.6 * amp * np.sin(2 * phase + 0.7) + tilt, 0.4 * amp * np.cos(phase) + 1 - abs(tilt)])
    xyz += 0.25 * np.random.randn(*xyz.shape) + 0.2 * np.random.randn(3, 1)
    return xyz.reshape(3, n_windows, WIN).transpose(1, 0, 2)


def collect(n_people, n_windows=16):
    xs = np.concatenate([record(a, n_windows) for a in ACTIVITIES for _ in range(n_people)])
    ys = np.repeat(np.arange(len(ACTIVITIES)), n_people * n_windows)
    return TensorDataset(torch.tensor(xs, dtype=torch.float32), torch.tensor(ys))


class HARNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(3, 24, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(24, 32, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(4))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(128, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, n_classes))

    def forward(self, x):
        return self.head(self.conv(x))


train_set, val_set = collect(16), collect(5)
sampler = DistributedSampler(train_set, num_replicas=WORLD, rank=RANK, shuffle=VARIANT == "fixed", seed=SEED)
train_loader = DataLoader(train_set, batch_size=32, sampler=sampler)
val_loader = DataLoader(val_set, batch_size=120)

model = HARNet(len(ACTIVITIES))
if BACKEND:
    model = torch.compile(model, backend=BACKEND)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()

losses = []
for epoch in range(6):
    sampler.set_epoch(epoch)
    model.train()
    seen = right = 0
    for x, y in train_loader:
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        right += (out.argmax(1) == y).sum().item()
        seen += len(y)
    model.eval()
    with torch.no_grad():
        val_acc = sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader) / len(val_set)
    print(f"epoch {epoch}  train loss {np.mean(losses[-48:]):.4f}  train acc {right / seen:.3f}  val acc {val_acc:.3f}")

print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-10:])), "metric_name": "val_accuracy",
                  "metric": val_acc, "ok": val_acc > 0.7}))
