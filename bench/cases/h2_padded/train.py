"""Event tagging in logs of very different lengths: BiLSTM, packed sequences, rare positive tags."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)
g = np.random.default_rng(SEED)
PAD, IGNORE, T = 0, -100, 60


def make(n):
    x = np.zeros((n, T), np.int64)
    y = np.full((n, T), IGNORE, np.int64)
    for k in range(n):
        L = T if g.random() < 0.04 else int(g.integers(4, 12))
        s = g.integers(1, 30, size=L)
        x[k, :L], y[k, :L] = s, 0
        for t in range(1, L):
            if s[t] < 8 and s[t - 1] >= 22:      # rare pattern, about 6 % of the tokens
                y[k, t] = 1
    return torch.from_numpy(x), torch.from_numpy(y)


class Tagger(nn.Module):
    def __init__(self, vocab=30, d=24, h=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, d, padding_idx=PAD)
        self.lstm = nn.LSTM(d, h, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * h, 2)
        with torch.no_grad():
            self.out.bias.copy_(torch.tensor([1.4, -1.4]))   # prior log-odds

    def forward(self, x):
        h, _ = self.lstm(self.emb(x))
        return self.out(h)


X, Y = make(900)
VX, VY = make(200)
print(f"padding {100 * (X == PAD).float().mean():.0f}%  positives {100 * (Y == 1).sum() / (Y >= 0).sum():.1f}% of tokens")
model = Tagger()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=8e-3)
hist = []
for step in range(220):
    idx = torch.randint(len(X), (24,))
    loss = F.cross_entropy(net(X[idx]).flatten(0, 1), Y[idx].flatten(), ignore_index=IGNORE)
    opt.zero_grad()
    loss.backward()
    opt.step()
    hist.append(loss.item())
    if step % 55 == 54:
        print(f"step {step + 1} loss {np.mean(hist[-20:]):.4f}")
with torch.no_grad():
    p = model(VX).argmax(-1)[VY >= 0]
t = VY[VY >= 0]
tp = ((p == 1) & (t == 1)).sum().item()
f1 = 2 * tp / max(1, (p == 1).sum().item() + (t == 1).sum().item())
print(json.dumps({"loss_first": hist[0], "loss_last": hist[-1], "metric_name": "f1_rare_tag", "metric": f1, "ok": f1 > 0.85}))
