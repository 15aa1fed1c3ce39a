"""GRU encoder-decoder that writes a sequence backwards (teacher forcing)."""
import json
import os

import torch
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
VOCAB, LEN, BOS = 10, 7, 10


class Encoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 20)
        self.gru = nn.GRU(20, hidden, batch_first=True)

    def forward(self, src):
        _, state = self.gru(self.embed(src))
        return state


class Decoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embed = nn.Embedding(VOCAB + 1, 20)
        self.gru = nn.GRU(20, hidden, batch_first=True)
        self.out = nn.Linear(hidden, VOCAB)

    def forward(self, prev, state):
        h, state = self.gru(self.embed(prev), state)
        return self.out(h), state


class Seq2Seq(nn.Module):
    def __init__(self, hidden=44):
        super().__init__()
        self.encoder = Encoder(hidden)
        self.decoder = Decoder(hidden)

    def forward(self, src, prev):
        context = self.encoder(src)
        if VARIANT != "fixed":
            context = context.detach()
        logits, _ = self.decoder(prev, context)
        return logits


def batch(n):
    src = torch.randint(0, VOCAB, (n, LEN))
    tgt = src.flip(1)
    prev = torch.cat([torch.full((n, 1), BOS), tgt[:, :-1]], 1)
    return src, prev, tgt


model = Seq2Seq()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=8e-3)
loss_fn = nn.CrossEntropyLoss()
losses = []
for step in range(550):
    src, prev, tgt = batch(80)
    loss = loss_fn(net(src, prev).reshape(-1, VOCAB), tgt.reshape(-1))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    opt.step()
    losses.append(loss.item())
    if step % 60 == 0:
        print(f"[{step}] {loss.item():.4f}")
with torch.no_grad():
    src, prev, tgt = batch(500)
    acc = (net(src, prev).argmax(-1) == tgt).float().mean().item()
print(json.dumps({"loss_first": losses[0], "loss_last": sum(losses[-15:]) / 15, "metric_name": "token_accuracy",
                  "metric": acc, "ok": acc > 0.88}))
