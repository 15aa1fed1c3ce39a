"""Node classification by message passing written by hand, on a random geometric community graph."""
import json
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)
torch.set_num_threads(1)

N, K = 420, 6
label = rng.integers(0, K, N)
same = label[:, None] == label[None, :]
adj = rng.random((N, N)) < np.where(same, 0.09, 0.01)
adj = np.triu(adj, 1)
adj = adj | adj.T
A = torch.tensor(adj, dtype=torch.float32) + torch.eye(N)
A = A / A.sum(1, keepdim=True)
code = rng.normal(size=(K, 30))
X = torch.tensor(code[label] * 0.35 + rng.normal(size=(N, 30)), dtype=torch.float32)
Y = torch.tensor(label)
train_idx = torch.arange(0, 260)
test_idx = torch.arange(260, N)


class Conv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) / n_in ** 0.5)
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return A @ (x @ self.weight) + self.bias


class GraphNet(nn.Module):
    def __init__(self, sizes, classes):
        super().__init__()
        layers = [Conv(a, b) for a, b in zip(sizes[:-1], sizes[1:])]
        self.layers = nn.ModuleList(layers) if VARIANT == "fixed" else layers
        self.readout = nn.Linear(sizes[-1], classes)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.readout(x)


model = GraphNet([30, 7, 5], K)
net = torch.compile(model, backend=BACKEND) if BACKEND else model
optim = torch.optim.Adam(model.parameters(), lr=0.015)
history = []
for epoch in range(350):
    optim.zero_grad()
    out = net(X)
    loss = nn.functional.cross_entropy(out[train_idx], Y[train_idx])
    loss.backward()
    optim.step()
    history.append(loss.item())
    if epoch % 50 == 0:
        print(f"epoch {epoch:3d} loss {loss.item():.3f}")
with torch.no_grad():
    acc = (net(X)[test_idx].argmax(1) == Y[test_idx]).float().mean().item()
print(json.dumps({"loss_first": history[0], "loss_last": history[-1], "metric_name": "test_accuracy", "metric": acc,
                  "ok": acc > 0.8}))
