"""Key-value look-up with one hand-written attention layer: return the value stored under the queried key."""
import json
import os

import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
KEYS, VALUES, SLOTS, DIM = 16, 7, 9, 220


class DotAttention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q = nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, d, bias=False)
        self.v = nn.Linear(d, d, bias=False)
        for lin in (self.q, self.k):
            nn.init.normal_(lin.weight, std=1.5 * d ** -0.5)
        self.scale = d ** -0.5 if VARIANT == "fixed" else 1.0

    def forward(self, query, memory):
        scores = torch.einsum("bd,bsd->bs", self.q(query), self.k(memory)) * self.scale
        return torch.einsum("bs,bsd->bd", scores.softmax(-1), self.v(memory))


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Embedding(KEYS, DIM)
        self.value = nn.Embedding(VALUES, DIM)
        self.attn = DotAttention(DIM)
        self.out = nn.Linear(DIM, VALUES)

    def forward(self, query, keys, values):
        memory = self.key(keys) + self.value(values)
        return self.out(self.attn(self.key(query), memory))


def batch(n):
    keys = torch.rand(n, KEYS).argsort(1)[:, :SLOTS]
    values = torch.randint(0, VALUES, (n, SLOTS))
    pos = torch.randint(0, SLOTS, (n, 1))
    return keys.gather(1, pos).squeeze(1), keys, values, values.gather(1, pos).squeeze(1)


model = Lookup()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
hist = []
for it in range(130):
    q, k, v, t = batch(64)
    loss = nn.functional.cross_entropy(net(q, k, v), t)
    opt.zero_grad()
    loss.backward()
    opt.step()
    hist.append(loss.item())
    if it % 40 == 0:
        print(f"{it} loss {loss.item():.4f}")
with torch.no_grad():
    q, k, v, t = batch(1000)
    acc = (net(q, k, v).argmax(1) == t).float().mean().item()
print(json.dumps({"loss_first": hist[0], "loss_last": sum(hist[-20:]) / 20, "metric_name": "accuracy", "metric": acc, "ok": acc > 0.95}))
