"""Minimal gated unit written from scratch: classify which of five motifs occurs in a noisy signal."""
import json
import os

import torch
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)


class GatedCell(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        n_all = n_in + n_hidden
        if VARIANT == "fixed":
            self.w_gate = nn.Parameter(torch.randn(n_hidden, n_all) / n_all ** 0.5)
            self.w_cand = nn.Parameter(torch.randn(n_hidden, n_all) / n_all ** 0.5)
        else:
            self.w_gate = nn.Parameter(torch.full((n_hidden, n_all), 0.02))
            self.w_cand = nn.Parameter(torch.full((n_hidden, n_all), 0.02))
        self.b_gate = nn.Parameter(torch.zeros(n_hidden))
        self.b_cand = nn.Parameter(torch.zeros(n_hidden))

    def forward(self, x, h):
        z = torch.cat([x, h], 1)
        gate = torch.sigmoid(z @ self.w_gate.T + self.b_gate)
        return (1 - gate) * h + gate * torch.tanh(z @ self.w_cand.T + self.b_cand)


class Recogniser(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.hidden = hidden
        self.cell = GatedCell(3, hidden)
        self.classify = nn.Linear(hidden, 5)
        if VARIANT != "fixed":
            nn.init.constant_(self.classify.weight, 0.02)

    def forward(self, x):
        h = x.new_zeros(len(x), self.hidden)
        for step in x.unbind(1):
            h = self.cell(step, h)
        return self.classify(h)


motifs = torch.randn(5, 9, 3)


def batch(n):
    c = torch.randint(0, 5, (n,))
    return motifs[c] + 0.7 * torch.randn(n, 9, 3), c


model = Recogniser()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=8e-3)
hist = []
for it in range(260):
    x, c = batch(45)
    loss = nn.functional.cross_entropy(net(x), c)
    opt.zero_grad()
    loss.backward()
    opt.step()
    hist.append(loss.item())
    if it % 50 == 0:
        print(f"iter {it} loss {loss.item():.4f}")
with torch.no_grad():
    x, c = batch(1000)
    acc = (net(x).argmax(1) == c).float().mean().item()
print(json.dumps({"loss_first": hist[0], "loss_last": sum(hist[-20:]) / 20, "metric_name": "accuracy", "metric": acc, "ok": acc > 0.9}))
