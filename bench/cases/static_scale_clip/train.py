"""Character-level recurrent language model under autocast with a gradient scaler."""
import json
import math
import os
import warnings

import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
warnings.filterwarnings("ignore")
torch.manual_seed(SEED)
torch.set_num_threads(1)
SYMBOLS, T = 14, 16
transition = torch.softmax(torch.randn(SYMBOLS, SYMBOLS) * 2.5, 1)


def text(n):
    seq = [torch.randint(0, SYMBOLS, (n,))]
    for _ in range(T):
        seq.append(torch.multinomial(transition[seq[-1]], 1).squeeze(1))
    return torch.stack(seq, 1)


class CharModel(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.emb = nn.Embedding(SYMBOLS, d)
        self.mix = nn.Linear(2 * d, d)
        self.ff = nn.Linear(d, d)
        self.out = nn.Linear(d, SYMBOLS)

    def forward(self, ids):
        e = self.emb(ids)
        prev = torch.cat([torch.zeros_like(e[:, :1]), e[:, :-1]], 1)
        h = torch.relu(self.mix(torch.cat([e, prev], -1)))
        return self.out(torch.relu(self.ff(h)) + h)


corpus = text(900)
model = CharModel()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 13, growth_interval=5000)
losses = []
for it in range(300):
    ids = corpus[torch.randint(0, 800, (24,))]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    scaler.scale(loss).backward()
    if VARIANT == "fixed":
        scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), 0.8)
    scaler.step(opt)
    scaler.update()
    losses.append(loss.item())
    if it % 50 == 0:
        print(f"{it} ppl {math.exp(loss.item()):.2f}")
with torch.no_grad():
    ids = corpus[800:]
    test = nn.functional.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).item()
stationary = corpus.flatten().bincount(minlength=SYMBOLS).float()
stationary /= stationary.sum()
floor = -(stationary[:, None] * transition * transition.log()).sum().item()
print(json.dumps({"loss_first": losses[0], "loss_last": sum(losses[-20:]) / 20, "metric_name": "excess_nats", "metric": test - floor,
                  "ok": test - floor < 0.15}))
