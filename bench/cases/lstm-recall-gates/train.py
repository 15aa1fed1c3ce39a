"""Recall a cue after a long delay with an LSTM (delayed recall, T = 60)."""
import json
import os

import numpy as np
import torch
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)

DELAY, N_CUES, N_NOISE = 60, 4, 6
VOCAB = N_CUES + N_NOISE + 1          # + the "answer now" token


def make_batch(n, gen):
    cue = torch.randint(0, N_CUES, (n, 2), generator=gen)
    noise = torch.randint(N_CUES, N_CUES + N_NOISE, (n, DELAY), generator=gen)
    ask = torch.full((n, 1), VOCAB - 1)
    return torch.cat([cue, noise, ask], 1), cue


class GateInit:
    """Initial values for the four gates, in PyTorch order (i, f, g, o)."""

    def __init__(self, w_std=0.1, forget=0.0):
        self.w_std = w_std
        self.forget = forget

    def apply(self, lstm):
        h = lstm.hidden_size
        for name, p in lstm.named_parameters():
            if "weight" in name:
                nn.init.normal_(p, std=self.w_std)
            else:
                nn.init.zeros_(p)
        with torch.no_grad():
            lstm.bias_ih_l0[h:2 * h].fill_(self.forget)


class Recaller(nn.Module):
    def __init__(self, emb=16, hidden=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, emb)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True)
        self.heads = nn.ModuleList([nn.Linear(hidden, N_CUES) for _ in range(2)])
        gates = GateInit(forget=0.0) if VARIANT == "faulty" else GateInit(forget=5.0)
        gates.apply(self.lstm)

    def forward(self, tokens):
        out, _ = self.lstm(self.emb(tokens))
        last = out[:, -1]
        return [head(last) for head in self.heads]


def loss_fn(logits, cue):
    return sum(nn.functional.cross_entropy(l, cue[:, k]) for k, l in enumerate(logits)) / len(logits)


def main():
    gen = torch.Generator().manual_seed(SEED + 100)
    model = Recaller()
    net = torch.compile(model, backend=COMPILE) if COMPILE else model
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    curve = []
    for it in range(240):
        x, cue = make_batch(48, gen)
        loss = loss_fn(net(x), cue)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        curve.append(loss.item())
        if it % 20 == 0:
            print(f"iter {it:4d} loss {np.mean(curve[-20:]):.4f}")

    model.eval()
    with torch.no_grad():
        x, cue = make_batch(400, torch.Generator().manual_seed(999))
        hits = [(l.argmax(1) == cue[:, k]).float().mean().item() for k, l in enumerate(model(x))]
    acc = float(np.mean(hits))
    print(json.dumps({"loss_first": curve[0], "loss_last": float(np.mean(curve[-10:])),
                      "metric_name": "recall_accuracy", "metric": acc, "ok": acc > 0.9}))


if __name__ == "__main__":
    main()
