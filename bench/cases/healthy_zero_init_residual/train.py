"""Deep residual classifier for the digits, every block starts as the identity (gate at zero)."""
import json
import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)


class GatedBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Linear(width, width)
        self.b = nn.Linear(width, width)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.gate * self.b(F.relu(self.a(x)))


class DeepNet(nn.Module):
    def __init__(self, width=64, depth=16):
        super().__init__()
        self.inp = nn.Linear(64, width)
        self.blocks = nn.ModuleList(GatedBlock(width) for _ in range(depth))
        self.out = nn.Linear(width, 10)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x):
        x = self.inp(x)
        for blk in self.blocks:
            x = blk(x)
        return self.out(x)


digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32)
x = (x - x.mean()) / x.std()
full = TensorDataset(x, torch.tensor(digits.target))
train, test = random_split(full, [1400, len(full) - 1400], generator=torch.Generator().manual_seed(SEED))
net = DeepNet()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
trace = []
for epoch in range(9):
    for xb, yb in DataLoader(train, batch_size=50, shuffle=True):
        loss = F.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        trace.append(loss.item())
    gates = torch.stack([b.gate.detach() for b in net.blocks]).abs().mean()
    print(f"epoch {epoch} loss {sum(trace[-28:]) / 28:.4f} mean |gate| {gates:.4f}")

net.eval()
with torch.no_grad():
    hits = [(net(xb).argmax(1) == yb).float() for xb, yb in DataLoader(test, batch_size=200)]
acc = torch.cat(hits).mean().item()
print(json.dumps({"loss_first": trace[0], "loss_last": trace[-1], "metric_name": "test_acc", "metric": acc, "ok": acc > 0.94}))
