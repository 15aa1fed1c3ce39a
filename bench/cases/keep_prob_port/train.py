"""Sentiment-like classification of token sequences: embedding, bidirectional LSTM, dense layers."""
import json
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
KEEP = 0.9

VOCAB, LENGTH = 60, 18
polarity = torch.zeros(VOCAB)
polarity[5:15] = 1.0
polarity[15:25] = -1.0


def reviews(n):
    tok = torch.randint(1, VOCAB, (n, LENGTH))
    sign = torch.where((tok == 30).roll(1, 1), -1.0, 1.0)
    s = (polarity[tok] * sign).sum(1)
    return tok[s != 0], (s[s != 0] > 0).long()


class Reader(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 26)
        self.drop_in = nn.Dropout(rate)
        self.lstm = nn.LSTM(26, 22, batch_first=True, bidirectional=True)
        self.drop_rnn = nn.Dropout(rate)
        self.dense = nn.Linear(44, 30)
        self.drop_out = nn.Dropout(rate)
        self.logits = nn.Linear(30, 2)

    def forward(self, tok):
        h, _ = self.lstm(self.drop_in(self.embedding(tok)))
        h = self.drop_rnn(h.mean(1))
        return self.logits(self.drop_out(torch.relu(self.dense(h))))


model = Reader(1 - KEEP if VARIANT == "fixed" else KEEP)
fwd = torch.compile(model, backend=BACKEND) if BACKEND else model
loader = DataLoader(TensorDataset(*reviews(1500)), batch_size=50, shuffle=True)
xv, yv = reviews(500)
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
ce = nn.CrossEntropyLoss()
losses = []
for epoch in range(10):
    model.train()
    for x, y in loader:
        opt.zero_grad()
        loss = ce(fwd(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        acc = (fwd(xv).argmax(1) == yv).float().mean().item()
    print(f"epoch {epoch} train {sum(losses[-25:]) / 25:.3f} val acc {acc:.3f}")
last = sum(losses[-25:]) / 25
print(json.dumps({"loss_first": losses[0], "loss_last": last, "metric_name": "train_loss", "metric": last,
                  "ok": last < 0.3 and acc > 0.85}))
