"""Fault detection on vibration signals: does the signal contain a burst of high amplitude?"""
import json
import os

import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)


def signals(n, length=96):
    y = torch.randint(0, 2, (n,))
    x = torch.randn(n, length)
    start = torch.randint(0, length - 24, (n, 1))
    pos = torch.arange(length)[None]
    burst = ((pos >= start) & (pos < start + 24)).float()
    return (x * (1 + 1.4 * burst * y[:, None])).unsqueeze(1), y.float()


class VibrationNet(nn.Module):
    def __init__(self, channels=(12, 18, 24)):
        super().__init__()
        self.convs = nn.ModuleList()
        c = 1
        for o in channels:
            self.convs.append(nn.Conv1d(c, o, 7, stride=2, padding=3))
            c = o
        self.norm = nn.LayerNorm(c)
        self.head = nn.Linear(c, 1)

    def forward(self, x):
        for conv in self.convs:
            x = conv(x)
            if VARIANT == "fixed":
                x = torch.relu(x)
        return self.head(self.norm(x.mean(-1))).squeeze(1)


model = VibrationNet()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
hist = []
for it in range(300):
    x, y = signals(48)
    loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    hist.append(loss.item())
    if it % 60 == 0:
        print(it, f"{loss.item():.4f}")
with torch.no_grad():
    x, y = signals(1000)
    acc = ((net(x) > 0).float() == y).float().mean().item()
print(json.dumps({"loss_first": hist[0], "loss_last": sum(hist[-30:]) / 30, "metric_name": "accuracy", "metric": acc, "ok": acc > 0.85}))
