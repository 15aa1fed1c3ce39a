"""Recognise one of eight 2-D gestures from a noisy pen trajectory with a GRU."""
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
CLASSES, T = 8, 20
freq = np.array([[1, 2], [2, 1], [1, 1], [3, 2], [2, 3], [1, 3], [3, 1], [2, 2]])[rng.permutation(8)]


def strokes(n):
    c = rng.integers(0, CLASSES, n)
    t = np.linspace(0, 2 * np.pi, T)
    phase = rng.uniform(0, 0.6, (n, 2))
    xy = np.stack([np.sin(freq[c, 0][:, None] * t + phase[:, :1]), np.sin(freq[c, 1][:, None] * t + phase[:, 1:])], -1)
    return torch.tensor(xy + rng.normal(0, 0.25, xy.shape), dtype=torch.float32), torch.tensor(c)


class GestureNet(nn.Module):
    def __init__(self, n_out):
        super().__init__()
        self.gru = nn.GRU(2, 30, batch_first=True)
        self.out = nn.Linear(30, n_out)

    def forward(self, x):
        return self.out(self.gru(x)[1][-1])


def loss_and_pred(out, c):
    if VARIANT == "fixed":
        return nn.functional.cross_entropy(out, c), out.argmax(1)
    return nn.functional.mse_loss(out.squeeze(1), c.float()), out.squeeze(1).round().long()


model = GestureNet(CLASSES if VARIANT == "fixed" else 1)
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=7e-3)
log = []
for it in range(260):
    x, c = strokes(56)
    loss, pred = loss_and_pred(net(x), c)
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.append(loss.item())
    if it % 50 == 0:
        print(f"{it} loss {loss.item():.3f} acc {(pred == c).float().mean().item():.2f}")
with torch.no_grad():
    x, c = strokes(800)
    acc = (loss_and_pred(net(x), c)[1] == c).float().mean().item()
print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-20:])), "metric_name": "accuracy", "metric": acc, "ok": acc > 0.95}))
