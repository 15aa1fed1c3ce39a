"""Graph regression: predict a molecule-like property with symmetric-normalised graph convolutions."""
import json
import math
import os

import torch
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
NODES = 14


class GraphConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.self_lin = nn.Linear(i, o)
        self.nbr_lin = nn.Linear(i, o, bias=False)

    def forward(self, x, adj):
        degree = adj.sum(-1)
        if VARIANT == "fixed":
            degree = degree.clamp(min=1)
        norm = degree.pow(-0.5)
        a = norm.unsqueeze(-1) * adj * norm.unsqueeze(-2)
        return self.self_lin(x) + a @ self.nbr_lin(x)


class Net(nn.Module):
    def __init__(self, width=28):
        super().__init__()
        self.conv1 = GraphConv(4, width)
        self.conv2 = GraphConv(width, width)
        self.readout = nn.Linear(width, 1)

    def forward(self, x, adj):
        h = torch.relu(self.conv1(x, adj))
        h = torch.relu(self.conv2(h, adj))
        return self.readout(h.mean(1)).squeeze(-1)


def graphs(n):
    kind = torch.randint(0, 4, (n, NODES))
    x = nn.functional.one_hot(kind, 4).float()
    adj = (torch.rand(n, NODES, NODES) < 0.14).float().triu(1)
    adj = adj + adj.transpose(1, 2)
    same = (kind.unsqueeze(2) == kind.unsqueeze(1)).float()
    y = (adj * same).sum((1, 2)) / 2 - adj.sum((1, 2)) / 6 + 0.3 * (kind == 0).sum(1)
    return x, adj, (y - y.mean()) / y.std()


X, A, Y = graphs(1600)
net = Net()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
trace = []
for step in range(320):
    b = torch.randint(0, 1300, (72,))
    loss = nn.functional.smooth_l1_loss(model(X[b], A[b]), Y[b])
    opt.zero_grad()
    loss.backward()
    opt.step()
    trace.append(loss.item())
    if step % 80 == 0:
        print(step, round(loss.item(), 4))
with torch.no_grad():
    r2 = 1 - ((model(X[1300:], A[1300:]) - Y[1300:]) ** 2).mean().item() / Y[1300:].var().item()
n = lambda v: round(v, 4) if math.isfinite(v) else None
print(json.dumps({"loss_first": n(trace[0]), "loss_last": n(trace[-1]), "metric_name": "r2", "metric": n(r2),
                  "ok": bool(math.isfinite(r2) and r2 > 0.5)}))
