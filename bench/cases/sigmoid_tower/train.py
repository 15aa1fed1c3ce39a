"""Seven-layer fully connected classifier for wine-like chemical measurements (larger synthetic set)."""
import json
import os

import torch
import torch.nn as nn
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

X, y = make_classification(3000, 16, n_informative=10, n_redundant=2, n_classes=3, n_clusters_per_class=2, class_sep=1.8,
                           random_state=SEED)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=SEED)
scaler = StandardScaler().fit(X_train)
to = lambda a: torch.tensor(scaler.transform(a), dtype=torch.float32)
X_train, X_test = to(X_train), to(X_test)
y_train, y_test = torch.tensor(y_train), torch.tensor(y_test)


def build(sizes):
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b), nn.ReLU() if VARIANT == "fixed" else nn.Sigmoid()]
    layers.append(nn.Linear(sizes[-2], sizes[-1]))
    return nn.Sequential(*layers)


model = build([16, 48, 48, 48, 48, 48, 48, 3])
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.9)
losses = []
for epoch in range(12):
    perm = torch.randperm(len(X_train))
    for i in range(0, len(perm), 70):
        b = perm[i:i + 70]
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(X_train[b]), y_train[b])
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {sum(losses[-30:]) / 30:.4f}")
with torch.no_grad():
    acc = (net(X_test).argmax(1) == y_test).float().mean().item()
print(json.dumps({"loss_first": losses[0], "loss_last": sum(losses[-30:]) / 30, "metric_name": "test_accuracy", "metric": acc, "ok": acc > 0.8}))
