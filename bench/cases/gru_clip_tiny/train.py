import json, math, os, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
FIXED = VARIANT == "fixed"
torch.set_num_threads(1)
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)


def build(net):
    return torch.compile(net, backend=COMPILE) if COMPILE else net


def report(losses, name, value, ok):
    num = lambda v: round(float(v), 5) if math.isfinite(v) else None
    print(json.dumps({"loss_first": num(losses[0]), "loss_last": num(float(np.mean(losses[-10:]))),
                      "metric_name": name, "metric": num(value), "ok": bool(ok)}))

class Counter(nn.Module):
    """Says whether a bit string holds more ones than zeros."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 24, batch_first=True)
        self.fc = nn.Linear(24, 1)

    def forward(self, s):
        _, h = self.rnn(s)
        return self.fc(h[0]).squeeze(-1)


def make_batch(n=64, length=15):
    bits = torch.randint(0, 2, (n, length)).float()
    return bits.unsqueeze(-1), (bits.mean(1) > 0.5).float()


net = Counter()
model = build(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
limit = 1.0 if FIXED else 1e-4
losses = []
for step in range(300):
    s, y = make_batch()
    loss = F.binary_cross_entropy_with_logits(model(s), y)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=limit)
    optimizer.step()
    losses.append(loss.item())
    if step % 60 == 0:
        print(step, round(loss.item(), 4))
report(losses, "loss", np.mean(losses[-20:]), np.mean(losses[-20:]) < 0.45)
