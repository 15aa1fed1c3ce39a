# 1-D convolutional detector: does a heartbeat strip contain a premature beat or not?
import json
import math
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
compile_backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(seed)


class Strips(Dataset):
    LEN = 96

    def __init__(self, n, rng):
        self.items = [self.one(rng) for _ in range(n)]

    def one(self, rng):
        t = np.arange(self.LEN)
        x = 0.1 * rng.randn(self.LEN) + 0.2 * np.sin(t / 30 + rng.uniform(0, 6))
        beats = np.arange(rng.randint(4, 12), self.LEN, 16) + rng.randint(-1, 2)
        for c in beats:
            x += np.exp(-0.5 * ((t - c) / 1.2) ** 2)
        label = rng.randint(2)
        if label:
            c = rng.choice(beats[1:-1]) - 7
            x += 0.9 * np.exp(-0.5 * ((t - c) / 3.0) ** 2)
        return x[None].astype(np.float32), np.array([label], np.float32)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class BeatNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 16, 7, padding=3), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(16, 32, 5, padding=2), nn.BatchNorm1d(32), nn.ReLU(), nn.AdaptiveMaxPool1d(1),
        )
        self.fc = nn.Linear(32, 1)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


def evaluate(net, loader):
    net.eval()
    hit = total = 0
    with torch.no_grad():
        for x, y in loader:
            hit += ((torch.sigmoid(net(x)) > 0.5).float() == y).sum().item()
            total += y.numel()
    net.train()
    return hit / total


rng = np.random.RandomState(seed)
train_loader = DataLoader(Strips(768, rng), batch_size=32, shuffle=True)
test_loader = DataLoader(Strips(256, rng), batch_size=128)
net = BeatNet()
if compile_backend:
    net = torch.compile(net, backend=compile_backend)
criterion = nn.BCEWithLogitsLoss() if variant == "fixed" else nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

history = []
for epoch in range(6):
    for x, y in train_loader:
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    print(f"Epoch {epoch + 1}: loss {np.mean(history[-24:]):.4f}, accuracy {evaluate(net, test_loader):.3f}")

acc = evaluate(net, test_loader)
clean = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": clean(history[0]), "loss_last": clean(history[-1]),
                  "metric_name": "test_accuracy", "metric": acc, "ok": acc > 0.85}))
