import json
import os
import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

FOLDERS = ["adult", "child"]


def render_face(kind, rng, size=16):
    yy, xx = np.mgrid[0:size, 0:size] / size - 0.5
    big = 0.34 if kind == "adult" else 0.30
    eye_y = -0.10 if kind == "adult" else 0.0
    cx, cy = rng.normal(0, 0.03, 2)
    head = (((xx - cx) / (big * 0.85)) ** 2 + ((yy - cy) / big) ** 2 < 1) * rng.uniform(0.5, 0.8)
    for sx in (-0.12, 0.12):
        head = head - 0.4 * np.exp(-((xx - cx - sx) ** 2 + (yy - cy - eye_y) ** 2) / 0.003)
    head = head - 0.3 * np.exp(-((xx - cx) ** 2 / 0.02 + (yy - cy - 0.2) ** 2 / 0.001))
    return head + rng.normal(0, 0.12, head.shape)


class FolderSource:
    """Yields (image, label) folder by folder, as files would come from disk."""

    def __init__(self, per_folder, seed):
        rng = np.random.default_rng(seed)
        self.items = [(render_face(f, rng), k) for k, f in enumerate(FOLDERS) for _ in range(per_folder)]

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)


class Pipeline:
    def __init__(self, source):
        self.source, self.ops = list(source), []

    def map(self, fn):
        self.ops.append(fn)
        return self

    def shuffle(self, seed):
        self.rng = np.random.default_rng(seed)
        return self

    def batch(self, n):
        self.n = n
        return self

    def __iter__(self):
        order = np.arange(len(self.source))
        if hasattr(self, "rng"):
            self.rng.shuffle(order)
        for s in range(0, len(order), self.n):
            xs, ys = [], []
            for i in order[s:s + self.n]:
                x, y = self.source[i]
                for op in self.ops:
                    x = op(x)
                xs.append(x)
                ys.append(y)
            yield torch.tensor(np.stack(xs), dtype=torch.float32).unsqueeze(1), torch.tensor(ys)


class FaceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU())
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, len(FOLDERS)))

    def forward(self, x):
        return self.head(self.features(x))


def accuracy(model, pipe):
    model.eval()
    hit = n = 0
    with torch.no_grad():
        for x, y in pipe:
            hit += (model(x).argmax(1) == y).sum().item()
            n += len(y)
    model.train()
    return hit / n


mu = 0.2
train = Pipeline(FolderSource(400, SEED)).map(lambda im: (im - mu) / 0.35).batch(20)
if VARIANT == "fixed":
    train = train.shuffle(SEED)
valid = Pipeline(FolderSource(100, SEED + 77)).map(lambda im: (im - mu) / 0.35).batch(100)

model = FaceNet()
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
opt = torch.optim.Adam(model.parameters(), lr=1.5e-3)
loss_fn = nn.CrossEntropyLoss()
trace, accs = [], []
for rnd in range(8):
    for x, y in train:
        opt.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        opt.step()
        trace.append(loss.item())
    accs.append(accuracy(model, valid))
    print(f"round {rnd}: train loss {np.mean(trace[-40:]):.4f} (last batch {trace[-1]:.4f})  validation accuracy {accs[-1]:.3f}")
print(json.dumps({"loss_first": trace[0], "loss_last": float(np.mean(trace[-10:])), "metric_name": "val_acc", "metric": accs[-1], "ok": accs[-1] > 0.9}))
