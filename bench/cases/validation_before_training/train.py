"""Deep tabular classifier with batch normalisation; a sanity validation runs before the first epoch."""
import json
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)


def block(i, o):
    return nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU())


class Tabular(nn.Module):
    def __init__(self, n_in, n_out, width=40, depth=15):
        super().__init__()
        self.blocks = nn.Sequential(block(n_in, width), *[block(width, width) for _ in range(depth - 1)])
        self.out = nn.Linear(width, n_out)

    def forward(self, x):
        return self.out(self.blocks(x))


def table(n):
    x = torch.randn(n, 12)
    r = x[:, :4].pow(2).sum(1)
    y = (r > 2.2).long() + (r > 3.4).long() + (r > 5.4).long()
    return x, y


class Runner:
    def __init__(self, model, train, val):
        self.model, self.val = model, val
        self.fwd = torch.compile(model, backend=BACKEND) if BACKEND else model
        self.loader = DataLoader(TensorDataset(*train), batch_size=75, shuffle=True, drop_last=True)
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        self.losses = []

    def validate(self):
        self.model.eval()
        with torch.no_grad():
            x, y = self.val
            acc = (self.fwd(x).argmax(1) == y).float().mean().item()
        if VARIANT == "fixed":
            self.model.train()
        return acc

    def run(self, epochs):
        self.model.train()
        print(f"sanity check {self.validate():.3f}")
        for epoch in range(epochs):
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.fwd(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.losses.append(loss.item())
            acc = self.validate()
            print(f"epoch {epoch} loss {self.losses[-1]:.3f} val {acc:.3f}")
        return acc


runner = Runner(Tabular(12, 4), table(3000), table(600))
acc = runner.run(8)
print(json.dumps({"loss_first": runner.losses[0], "loss_last": sum(runner.losses[-20:]) / 20,
                  "metric_name": "val_accuracy", "metric": acc, "ok": acc > 0.5}))
