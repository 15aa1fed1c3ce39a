"""Activity recognition from wearable recordings; all windows are kept in memory as one array."""
import json
import math
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

seed = int(os.environ.get("CASE_SEED", "0"))
variant = os.environ.get("CASE_VARIANT", "faulty")
torch.set_num_threads(1)
torch.manual_seed(seed)

ACTIVITIES = ["rest", "walk", "stairs", "run", "cycle", "row"]
HZ, T = 25, 128


def window(k, rng):
    """Acceleration in m/s^2, angular rate in deg/s, heart rate per minute, skin temperature."""
    t = np.arange(T) / HZ
    f = [0.3, 1.6, 1.9, 2.6, 1.4, 0.7][k] * rng.uniform(0.85, 1.15)
    amp = [0.5, 2.5, 3.0, 5.0, 1.2, 3.0][k] * rng.uniform(0.6, 1.4)
    w = 2 * np.pi * f * t + rng.uniform(0, 6)
    acc = 9.8 + amp * np.sin(w) + [0, 0.4, 0.8, 0.5, 0.2, 0.1][k] * amp * np.sin(2 * w + 0.7)
    gyr = 30 * amp * np.sin(w + [0, 0.5, 1.5, 0.9, 2.4, 3.0][k])
    pulse = [66, 92, 118, 146, 124, 130][k] + rng.normal(0, 14) + np.cumsum(rng.normal(0, 0.2, T))
    skin = 32.5 + rng.normal(0, 1.3) + 0.05 * rng.standard_normal(T)
    x = np.stack([acc + 1.2 * rng.standard_normal(T), gyr + 25 * rng.standard_normal(T), pulse, skin])
    return x


def collect(n, rng):
    y = rng.integers(0, len(ACTIVITIES), n)
    return np.stack([window(k, rng) for k in y]).astype(np.float32), y


class Standardize:
    def __init__(self, x, inplace=True):
        self.mean = torch.tensor(x.mean((0, 2)), dtype=torch.float32)[:, None]
        self.std = torch.tensor(x.std((0, 2)), dtype=torch.float32)[:, None]
        self.inplace = inplace

    def __call__(self, w):
        if not self.inplace:
            w = w.clone()
        return w.sub_(self.mean).div_(self.std)


class Windows(Dataset):
    def __init__(self, x, y, transform):
        self.x, self.y, self.transform = x, y, transform

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.transform(torch.from_numpy(self.x[i])), int(self.y[i])


class ConvNet(nn.Module):
    def __init__(self, c, n_out):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(c, 32, 9, stride=2), nn.ReLU(), nn.Conv1d(32, 48, 5, stride=2), nn.ReLU(),
                                   nn.Conv1d(48, 48, 5, stride=2), nn.ReLU())
        self.out = nn.Sequential(nn.Linear(96, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, n_out))

    def forward(self, x):
        h = self.front(x)
        return self.out(torch.cat([h.mean(2), h.amax(2)], 1))


def run_epoch(model, loader, crit, opt):
    total = []
    for x, target in loader:
        opt.zero_grad()
        loss = crit(model(x), target)
        loss.backward()
        opt.step()
        total.append(loss.item())
    return total


def test(net, model, loader):
    net.eval()
    hit = n = 0
    with torch.no_grad():
        for x, target in loader:
            hit += (model(x).argmax(1) == target).sum().item()
            n += len(target)
    net.train()
    return hit / n


def main():
    rng = np.random.default_rng(seed)
    x, y = collect(1200, rng)
    held, held_y = collect(400, rng)
    norm = Standardize(x, inplace=variant != "fixed")
    loader = DataLoader(Windows(x, y, norm), batch_size=32, shuffle=True)
    net = ConvNet(4, len(ACTIVITIES))
    backend = os.environ.get("CASE_COMPILE", "")
    model = torch.compile(net, backend=backend) if backend else net
    crit, opt = nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), lr=1e-3)
    log = []
    for epoch in range(15):
        part = run_epoch(model, loader, crit, opt)
        log += part
        acc = test(net, model, DataLoader(Windows(held.copy(), held_y, norm), batch_size=100))
        print(f"epoch {epoch:2d}  loss {np.mean(part):.4f}  held-out accuracy {acc:.3f}")
    fin = lambda v: v if math.isfinite(v) else None
    print(json.dumps({"loss_first": fin(log[0]), "loss_last": fin(float(np.mean(log[-20:]))), "metric_name": "held_out_accuracy",
                      "metric": acc, "ok": acc > 0.9}))


main()
