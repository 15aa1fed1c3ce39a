# Reads a strip of digits: conv stack -> columns -> GRU -> one symbol per slot.
import os, json, math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(seed)
rng = np.random.default_rng(seed)
torch.set_num_threads(1)

SLOTS = 4


class StripMaker:
    def __init__(self, images, labels):
        self.by_class = [images[labels == c] for c in range(10)]

    def batch(self, n):
        y = rng.integers(0, 10, (n, SLOTS))
        x = np.zeros((n, 1, 8, 8 * SLOTS), dtype=np.float32)
        for i in range(n):
            for s in range(SLOTS):
                pool = self.by_class[y[i, s]]
                x[i, 0, :, 8 * s:8 * s + 8] = pool[rng.integers(len(pool))]
        x += rng.normal(0, 0.05, x.shape).astype(np.float32)
        return torch.from_numpy((x - 0.3) / 0.38), torch.from_numpy(y)


def conv(i, o, pool=None):
    mods = [nn.Conv2d(i, o, 3, padding=1)]
    if variant == "fixed":
        mods.append(nn.BatchNorm2d(o))
    mods.append(nn.ReLU(inplace=True))
    if pool:
        mods.append(nn.MaxPool2d(pool))
    return mods


class CRNN(nn.Module):
    def __init__(self, classes=10, hidden=48):
        super().__init__()
        plan = [(1, 16, None), (16, 16, None), (16, 24, None), (24, 24, (2, 2)),
                (24, 32, None), (32, 32, None), (32, 32, None), (32, 32, None), (32, 48, (2, 2)),
                (48, 48, None), (48, 48, None), (48, 48, None), (48, 48, None), (48, 48, (2, 2))]
        self.cnn = nn.Sequential(*[m for p in plan for m in conv(*p)])
        self.rnn = nn.GRU(48, hidden, bidirectional=True, batch_first=True)
        self.classifier = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        f = self.cnn(x).squeeze(2).transpose(1, 2)     # N, SLOTS, C
        h, _ = self.rnn(f)
        return self.classifier(h)


d = load_digits()
perm = rng.permutation(len(d.target))
images, labels = (d.images / 16.0)[perm].astype(np.float32), d.target[perm]
train_gen = StripMaker(images[:1400], labels[:1400])
test_x, test_y = StripMaker(images[1400:], labels[1400:]).batch(200)

model = CRNN()
net = torch.compile(model, backend=backend) if backend else model
opt = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
STEPS = 160
losses = []
for step in range(1, STEPS + 1):
    model.train()
    x, y = train_gen.batch(24)
    out = net(x)
    loss = F.cross_entropy(out.reshape(-1, 10), y.reshape(-1))
    model.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    losses.append(loss.item())
    if step % 40 == 0:
        model.eval()
        with torch.no_grad():
            pred = model(test_x).argmax(-1)
        acc = (pred == test_y).float().mean().item()
        shown = "".join(map(str, pred[0].tolist())), "".join(map(str, test_y[0].tolist()))
        print(f"{step:4d} loss {np.mean(losses[-20:]):.4f}  char acc {acc:.3f}  {shown[0]} => gt {shown[1]}")

fin = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(losses[0]), "loss_last": fin(np.mean(losses[-20:])), "metric_name": "char_accuracy",
                  "metric": acc, "ok": bool(acc > 0.85)}))
