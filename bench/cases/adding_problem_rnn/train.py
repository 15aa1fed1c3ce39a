"""Adding-type problem (sum of the marked values) with an identity-initialised ReLU RNN."""
import json
import math
import os

import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
T, HIDDEN, BATCH = 60, 50, 30


class Adder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(2, HIDDEN, nonlinearity="relu", batch_first=True)
        with torch.no_grad():
            self.rnn.weight_hh_l0.copy_(torch.eye(HIDDEN))
            self.rnn.bias_hh_l0.zero_()
            self.rnn.bias_ih_l0.zero_()
            self.rnn.weight_ih_l0.normal_(0, 0.1)
        self.read = nn.Linear(HIDDEN, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.read(h[:, -1]).squeeze(-1)


def sample(n):
    values = torch.rand(n, T)
    marks = (torch.rand(n, T) < 0.2).float()
    return torch.stack([values, marks], -1), (values * marks).sum(1) / 2


model = Adder()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.SGD(model.parameters(), lr=0.002)
hist = []
for it in range(450):
    x, y = sample(BATCH)
    loss = ((net(x) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    if VARIANT == "fixed":
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    hist.append(loss.item())
    if it % 50 == 0:
        print(f"{it}: {loss.item():.4g}")
with torch.no_grad():
    x, y = sample(600)
    err = (((net(x) - y) ** 2).mean() / y.var()).item()
n = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": n(hist[0]), "loss_last": n(sum(hist[-20:]) / 20), "metric_name": "relative_error", "metric": n(err),
                  "ok": math.isfinite(err) and err < 0.6}))
