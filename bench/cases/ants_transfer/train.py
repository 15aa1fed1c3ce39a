import json
import math
import os
import random

import numpy as np
import torch
from torch import nn, optim
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")

torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

# image classification: 8x8 scans, 10 classes, train/val split
data = load_digits()
x = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)
x = (x - x.mean()) / x.std()
y = torch.tensor(data.target)
order = torch.randperm(len(x))
sets = {"train": TensorDataset(x[order[:1280]], y[order[:1280]]), "val": TensorDataset(x[order[1280:]], y[order[1280:]])}
loaders = {k: DataLoader(v, batch_size=64, shuffle=(k == "train")) for k, v in sets.items()}


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = nn.Conv2d(cin, cout, 1, stride, bias=False) if stride != 1 or cin != cout else nn.Identity()

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + self.down(x))


class MiniResNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, 1, 1)
        self.layer1 = BasicBlock(8, 8)
        self.layer2 = BasicBlock(8, 16, 2)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = self.layer2(self.layer1(torch.relu(self.stem(x))))
        return self.fc(x.mean((2, 3)))


net = MiniResNet()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)

EPOCHS = 10
losses = []
acc = 0.0
for epoch in range(EPOCHS):
    for phase in ("train", "val"):
        net.train(phase == "train")
        running_loss, correct = 0.0, 0
        for inputs, labels in loaders[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                outputs = model(inputs)
                loss = criterion(outputs, labels)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
                    if VARIANT != "fixed":
                        exp_lr_scheduler.step()
            running_loss += loss.item() * len(inputs)
            correct += (outputs.argmax(1) == labels).sum().item()
        if phase == "train" and VARIANT == "fixed":
            exp_lr_scheduler.step()
        n = len(sets[phase])
        acc = correct / n
        print(f"Epoch {epoch}/{EPOCHS - 1} {phase} Loss: {running_loss / n:.4f} Acc: {acc:.4f}")

f = lambda v: round(v, 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": f(losses[0]), "loss_last": f(float(np.mean(losses[-10:]))), "metric_name": "val_acc",
                  "metric": f(acc), "ok": bool(acc > 0.9)}))
