"""Sentiment of short reviews with a bidirectional GRU."""
import json
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

VOCAB, LENGTH = 1500, 16
N_TRAIN = 4000 if VARIANT == "fixed" else 320
STEPS = 300


def write_reviews(n):
    """Zipf-distributed words; words 20..99 praise, 100..179 complain."""
    freq = 1.0 / (np.arange(VOCAB) + 5.0)
    freq /= freq.sum()
    y = rng.integers(0, 2, n)
    x = rng.choice(VOCAB, size=(n, LENGTH), p=freq)
    for i in range(n):
        for pos in rng.choice(LENGTH, 3, replace=False):
            agree = rng.random() < 0.8
            start = 20 if (y[i] == 1) == agree else 100
            x[i, pos] = start + rng.integers(0, 80)
    return torch.tensor(x), torch.tensor(y)


class ReviewClassifier(nn.Module):
    def __init__(self, emb=32, hidden=24, dropout=0.1):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, emb)
        self.drop = nn.Dropout(dropout)
        self.rnn = nn.GRU(emb, hidden, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, 2)

    def forward(self, tokens):
        h, _ = self.rnn(self.drop(self.embed(tokens)))
        return self.fc(self.drop(h.mean(dim=1)))


def evaluate(net, x, y):
    net.eval()
    with torch.no_grad():
        logits = net(x)
    return F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()


x_val, y_val = write_reviews(400)
x_train, y_train = write_reviews(N_TRAIN)
loader = DataLoader(TensorDataset(x_train, y_train), batch_size=32, shuffle=True)

net = ReviewClassifier()
if COMPILE:
    net = torch.compile(net, backend=COMPILE)
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)

losses = []
while len(losses) < STEPS:
    for xb, yb in loader:
        net.train()
        loss = F.cross_entropy(net(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) % 30 == 0:
            val_loss, val_acc = evaluate(net, x_val, y_val)
            print(f"step {len(losses)}: train {np.mean(losses[-10:]):.3f} val {val_loss:.3f} val acc {val_acc:.3f}")
        if len(losses) == STEPS:
            break

print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-10:])),
                  "metric_name": "val_loss", "metric": val_loss, "ok": val_loss < 0.75}))
