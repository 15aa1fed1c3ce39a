"""Small CNN with batch normalisation, layer settings taken over from another framework."""
import json
import os

import torch
import torch.nn as nn
from sklearn.datasets import load_digits

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
BN_MOMENTUM = 0.1 if VARIANT == "fixed" else 0.0003


class BasicConv(nn.Module):
    def __init__(self, i, o, **kw):
        super().__init__()
        self.conv = nn.Conv2d(i, o, bias=False, **kw)
        self.bn = nn.BatchNorm2d(o, eps=1e-3, momentum=BN_MOMENTUM)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


class MiniInception(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = BasicConv(1, 16, kernel_size=3, padding=1)
        self.b1 = BasicConv(16, 8, kernel_size=1)
        self.b3 = BasicConv(16, 16, kernel_size=3, padding=1)
        self.reduce = BasicConv(24, 24, kernel_size=3, stride=2)
        self.mix = BasicConv(24, 32, kernel_size=2)
        self.fc = nn.Linear(32, 10)

    def forward(self, x):
        x = self.stem(x)
        x = torch.cat([self.b1(x), self.b3(x)], 1)
        x = self.mix(self.reduce(x))
        return self.fc(x.mean((2, 3)))


d = load_digits()
x = torch.tensor(d.images, dtype=torch.float32)[:, None]
y = torch.tensor(d.target)
p = torch.randperm(len(y))
x, y = x[p], y[p]
model = MiniInception()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.85)
hist = []
bs = 44
for epoch in range(7):
    model.train()
    idx = torch.randperm(1320)
    hits = 0
    for k in range(0, 1320, bs):
        b = idx[k:k + bs]
        out = net(x[b])
        loss = nn.functional.cross_entropy(out, y[b])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        hist.append(loss.item())
        hits += (out.argmax(1) == y[b]).sum().item()
    model.eval()
    with torch.no_grad():
        acc = (net(x[1320:]).argmax(1) == y[1320:]).float().mean().item()
    print(f"epoch {epoch} train acc {hits / 1320:.3f} val acc {acc:.3f}")
print(json.dumps({"loss_first": hist[0], "loss_last": hist[-1], "metric_name": "val_accuracy", "metric": acc, "ok": acc > 0.9}))
