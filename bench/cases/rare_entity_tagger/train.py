"""Sequence labelling: most tokens carry the label O, three entity labels are rare and noisy."""
import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
LABELS, T, DIM = 4, 25, 16
centre = torch.randn(LABELS, DIM)
centre = 2.3 * centre / centre.norm(dim=1, keepdim=True)
centre[0] = 0


def sentences(n):
    y = torch.zeros(n, T, dtype=torch.long)
    entity = torch.rand(n, T) < 0.03
    y[entity] = torch.randint(1, LABELS, (int(entity.sum()),))
    return centre[y] + torch.randn(n, T, DIM), y


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(DIM, 14, batch_first=True, bidirectional=True)
        self.out = nn.Linear(28, LABELS)

    def forward(self, x):
        return self.out(self.lstm(x)[0])


def macro_recall(pred, y):
    return sum(((pred == c) & (y == c)).sum().item() / (y == c).sum().item() for c in range(LABELS)) / LABELS


model = Tagger()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=1.5e-3)
weight = torch.tensor([1.0, 60.0, 60.0, 60.0]) if VARIANT == "fixed" else None
losses = []
for step in range(220):
    x, y = sentences(26)
    loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten(), weight=weight)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
with torch.no_grad():
    x, y = sentences(600)
    pred = net(x).argmax(-1)
rec = macro_recall(pred, y)
print(f"token accuracy {(pred == y).float().mean().item():.3f}")
print(json.dumps({"loss_first": losses[0], "loss_last": sum(losses[-20:]) / 20, "metric_name": "macro_recall", "metric": rec, "ok": rec > 0.6}))
