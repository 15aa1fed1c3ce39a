"""Classify whether a price window is in an up-trend or not, from price and volume."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)
torch.set_num_threads(1)


class Windows(Dataset):
    def __init__(self, n, length=24):
        drift = rng.choice([-1.0, 1.0], n)
        steps = rng.normal(0, 220, (n, length)) + 70 * drift[:, None]
        price = 31000 + rng.normal(0, 900, (n, 1)) + steps.cumsum(1)
        volume = rng.lognormal(12, 0.4, (n, length))
        self.x = np.stack([price, volume], -1)
        if VARIANT == "fixed":
            self.x = (self.x - self.x.mean(1, keepdims=True)) / self.x.std(1, keepdims=True)
        self.x = torch.tensor(self.x, dtype=torch.float32)
        self.y = torch.tensor(drift > 0).float()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class TrendLSTM(nn.Module):
    def __init__(self, hidden=34):
        super().__init__()
        self.lstm = nn.LSTM(2, hidden, num_layers=2, batch_first=True)
        self.fc = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1]).squeeze(1)


train, test = Windows(1800), Windows(500)
loader = DataLoader(train, batch_size=60, shuffle=True)
model = TrendLSTM()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.BCEWithLogitsLoss()
hist = []
for epoch in range(6):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
        hist.append(loss.item())
    print(f"Epoch {epoch} loss {np.mean(hist[-30:]):.4f}")
with torch.no_grad():
    acc = ((net(test.x) > 0).float() == test.y).float().mean().item()
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-30:])), "metric_name": "test_accuracy", "metric": acc,
                  "ok": acc > 0.85}))
