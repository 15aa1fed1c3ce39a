"""LeNet-like CNN on 8x8 digits."""
import json
import math
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from sklearn.datasets import load_digits

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
LR = 0.003 if VARIANT == "fixed" else 0.15


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 10, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(10, 20, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Linear(80, 60), nn.ReLU(), nn.Linear(60, 10))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


data = load_digits()
ds = TensorDataset(torch.tensor(data.images, dtype=torch.float32)[:, None] / 16 - 0.3, torch.tensor(data.target))
train_ds, test_ds = random_split(ds, [1437, 360], generator=torch.Generator().manual_seed(SEED))
train_dl = DataLoader(train_ds, batch_size=24, shuffle=True)
model = LeNet()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
losses = []
for epoch in range(5):
    running = 0.0
    for xb, yb in train_dl:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(xb), yb)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        running += loss.item()
    print(f"epoch {epoch + 1}: {running / len(train_dl):.4f}")
hits = 0
with torch.no_grad():
    for xb, yb in DataLoader(test_ds, batch_size=120):
        hits += (net(xb).argmax(1) == yb).sum().item()
acc = hits / len(test_ds)
n = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": n(losses[0]), "loss_last": n(sum(losses[-30:]) / 30), "metric_name": "test_accuracy", "metric": acc,
                  "ok": acc > 0.9}))
