import json
import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CASE_VARIANT = os.environ.get("CASE_VARIANT", "faulty")
CASE_SEED = int(os.environ.get("CASE_SEED", "0"))
CASE_COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(CASE_SEED)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.conv2 = nn.Conv2d(12, 24, 3, padding=1)
        self.conv3 = nn.Conv2d(24, 24, 3, padding=1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = torch.relu(self.conv2(x))
        x = torch.relu(self.conv3(x))
        return nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)


class Classifier(nn.Module):
    def __init__(self, encoder, n):
        super().__init__()
        self.encoder = encoder
        self.fc = nn.Linear(96, n)

    def forward(self, x):
        return self.fc(self.encoder(x))


def accuracy(net, x, y):
    net.eval()
    with torch.no_grad():
        a = (net(x).argmax(1) == y).float().mean().item()
    net.train()
    return a


def make_optimizer(net, lr):
    return torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=lr)


data = load_digits()
x = torch.tensor(data.images / 16.0, dtype=torch.float32).unsqueeze(1)
y = torch.tensor(data.target)
tr, te = train_test_split(np.arange(len(x)), test_size=0.25, random_state=CASE_SEED, stratify=data.target)

# stage 0: pretext task, which way up is the image
encoder = Encoder()
pretext = Classifier(encoder, 4)
opt = make_optimizer(pretext, 3e-3)
for it in range(60):
    b = x[tr[torch.randint(0, len(tr), (64,)).numpy()]]
    k = torch.randint(0, 4, (64,))
    rot = torch.stack([torch.rot90(img, int(r), (1, 2)) for img, r in zip(b, k)])
    loss = nn.functional.cross_entropy(pretext(rot), k)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"pretext loss {loss.item():.3f}")

# stage 1: head only; stage 2: everything
model = Classifier(encoder, 10)
for p in model.encoder.parameters():
    p.requires_grad = False
run_model = torch.compile(model, backend=CASE_COMPILE) if CASE_COMPILE else model
loader = DataLoader(TensorDataset(x[tr], y[tr]), batch_size=64, shuffle=True, drop_last=True)
optimizer = make_optimizer(model, 5e-3)

losses = []
for epoch in range(15):
    if epoch == 3:
        for p in model.encoder.parameters():
            p.requires_grad = True
        if CASE_VARIANT == "fixed":
            optimizer = make_optimizer(model, 5e-3)
        print("encoder unfrozen")
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(run_model(xb), yb)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {np.mean(losses[-20:]):.3f} test acc {accuracy(model, x[te], y[te]):.3f}")

acc = accuracy(model, x[te], y[te])
print(json.dumps({"loss_first": losses[0], "loss_last": losses[-1], "metric_name": "test_accuracy",
                  "metric": acc, "ok": acc > 0.9}))
