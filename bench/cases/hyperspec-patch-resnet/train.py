import json
import os
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
BANDS, PATCH, CLASSES = 8, 7, 5


def spectra():
    w = np.linspace(0, 1, BANDS)
    g = np.random.default_rng(3)
    base = [0.35 + 0.08 * np.sin(2 * np.pi * (k + 1) * w / 2 + k) + 0.02 * g.normal(size=BANDS) for k in range(CLASSES)]
    return np.array(base)


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean.reshape(-1, 1, 1), std.reshape(-1, 1, 1)

    def __call__(self, x):
        return (x - self.mean) / self.std


class RandomFlip:
    def __call__(self, x):
        if np.random.rand() < 0.5:
            x = x[:, ::-1]
        if np.random.rand() < 0.5:
            x = x[:, :, ::-1]
        return x


class ToTensor:
    def __call__(self, x):
        return torch.from_numpy(np.ascontiguousarray(x)).float()


class Compose:
    def __init__(self, *ts):
        self.ts = ts

    def __call__(self, x):
        for t in self.ts:
            x = t(x)
        return x


class Patches(Dataset):
    def __init__(self, n, seed, transform=None):
        g = np.random.default_rng(seed)
        base = spectra()
        self.y = g.integers(0, CLASSES, n)
        light = g.normal(1, 0.05, (n, 1, 1, 1))
        self.x = base[self.y][:, :, None, None] * light + g.normal(0, 0.06, (n, BANDS, PATCH, PATCH))
        self.transform = transform

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.transform(self.x[i]), int(self.y[i])


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c)

    def forward(self, x):
        h = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(h)))


class SmallResNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(BANDS, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stage = nn.Sequential(ResBlock(width), ResBlock(width))
        self.fc = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.fc(self.stage(self.stem(x)).mean((2, 3)))


def run_epoch(model, loader, criterion, optimizer=None, sink=None):
    model.train(optimizer is not None)
    right = total = 0
    with torch.set_grad_enabled(optimizer is not None):
        for x, y in loader:
            out = model(x)
            loss = criterion(out, y)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                sink.append(loss.item())
            right += (out.argmax(1) == y).sum().item()
            total += len(y)
    return right / total


train_set = Patches(1600, SEED)
mean, std = train_set.x.mean((0, 2, 3)), train_set.x.std((0, 2, 3))
norm = Normalize(mean, std)
train_set.transform = Compose(RandomFlip(), norm, ToTensor())
if VARIANT == "fixed":
    test_tf = Compose(norm, ToTensor())
else:
    test_tf = Compose(ToTensor())
test_set = Patches(400, SEED + 31, test_tf)
train_dl = DataLoader(train_set, batch_size=50, shuffle=True)
test_dl = DataLoader(test_set, batch_size=200)

model = SmallResNet()
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [4, 5], gamma=0.1)
criterion = nn.CrossEntropyLoss()
losses = []
for epoch in range(6):
    tr = run_epoch(model, train_dl, criterion, optimizer, losses)
    te = run_epoch(model, test_dl, criterion)
    scheduler.step()
    print(f"[{epoch}] train acc {tr:.3f}  test acc {te:.3f}  loss {np.mean(losses[-30:]):.4f}")
print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-20:])), "metric_name": "test_acc", "metric": te, "ok": te > 0.85}))
