import json
import os

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)


class DigitCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 24, 3, padding=1)
        self.conv2 = nn.Conv2d(24, 48, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(48 * 2 * 2, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        x = torch.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def l1_keep(conv, ratio):
    n = max(1, int(round(conv.out_channels * ratio)))
    score = conv.weight.detach().abs().sum(dim=(1, 2, 3))
    return score.topk(n).indices.sort().values


def shrink_conv(conv, keep_out, keep_in=None):
    w = conv.weight.detach()[keep_out]
    if keep_in is not None:
        w = w[:, keep_in]
    new = nn.Conv2d(w.shape[1], w.shape[0], conv.kernel_size, padding=conv.padding)
    new.weight.data.copy_(w)
    new.bias.data.copy_(conv.bias.detach()[keep_out])
    return new


def speedup(net, ratio):
    """Physically remove the channels with the smallest filters."""
    k1, k2 = l1_keep(net.conv1, ratio), l1_keep(net.conv2, ratio)
    net.conv1 = shrink_conv(net.conv1, k1)
    net.conv2 = shrink_conv(net.conv2, k2, k1)
    old = net.fc1
    cols = (k2[:, None] * 4 + torch.arange(4)[None]).flatten()
    net.fc1 = nn.Linear(len(cols), old.out_features)
    net.fc1.weight.data.copy_(old.weight.detach()[:, cols])
    net.fc1.bias.data.copy_(old.bias.detach())
    return net


def n_params(net):
    return sum(p.numel() for p in net.parameters())


def evaluate(net, x, y):
    net.eval()
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def wrap(net):
    return torch.compile(net, backend=COMPILE) if COMPILE else net


def run_epochs(net, optimizer, loader, epochs, history, tag):
    model = wrap(net)
    criterion = nn.CrossEntropyLoss()
    for ep in range(epochs):
        net.train()
        tot = 0.0
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()
            history.append(loss.item())
            tot += loss.item()
        print(f"[{tag}] epoch {ep} loss {tot / len(loader):.4f} test acc {evaluate(net, xte, yte):.3f}")


d = load_digits()
X = torch.tensor(d.images / 16.0, dtype=torch.float32).unsqueeze(1)
Y = torch.tensor(d.target)
xtr, xte, ytr, yte = train_test_split(X, Y, test_size=0.25, random_state=SEED)
loader = DataLoader(TensorDataset(xtr, ytr), batch_size=64, shuffle=True, drop_last=True)

net = DigitCNN()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
hist = []
run_epochs(net, optimizer, loader, 7, hist, "dense")
dense_acc, dense_size = evaluate(net, xte, yte), n_params(net)

speedup(net, ratio=0.2)
print(f"pruned {dense_size} -> {n_params(net)} params, acc {dense_acc:.3f} -> {evaluate(net, xte, yte):.3f}")
if VARIANT == "fixed":
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
run_epochs(net, optimizer, loader, 11, hist, "finetune")

acc = evaluate(net, xte, yte)
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-10:])),
                  "metric_name": "pruned_test_accuracy", "metric": acc, "ok": acc > dense_acc - 0.08}))
