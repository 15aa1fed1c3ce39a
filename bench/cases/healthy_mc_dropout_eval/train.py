"""Diabetes progression with Monte-Carlo dropout: predictions are averaged over stochastic passes."""
import json
import os

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
r = np.random.default_rng(SEED)

x, y = load_diabetes(return_X_y=True)
order = r.permutation(len(x))
tr, te = order[:340], order[340:]
mx, sx, my, sy = x[tr].mean(0), x[tr].std(0), y[tr].mean(), y[tr].std()
to = lambda a: torch.tensor(a, dtype=torch.float32)
xtr, ytr = to((x[tr] - mx) / sx), to((y[tr] - my) / sy)
xte, yte = to((x[te] - mx) / sx), to((y[te] - my) / sy)


class BayesianMLP(nn.Module):
    def __init__(self, h=96, p=0.5):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, h), nn.ReLU(), nn.Dropout(p), nn.Linear(h, h), nn.ReLU(), nn.Dropout(p),
                                 nn.Linear(h, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def sample(net, x, passes=40):
    net.train()          # dropout stays on, this is where the spread comes from
    with torch.no_grad():
        return torch.stack([net(x) for _ in range(passes)])


net = BayesianMLP()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.02)
trace = []
for step in range(300):
    i = torch.randint(0, len(xtr), (32,))
    loss = (model(xtr[i]) - ytr[i]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    trace.append(loss.item())
    if step % 60 == 59:
        s = sample(net, xte, 20)
        print(f"{step + 1} train {np.mean(trace[-60:]):.3f} test rmse {(s.mean(0) - yte).pow(2).mean().sqrt():.3f} spread {s.std(0).mean():.3f}")

draws = sample(net, xte)
mean, spread = draws.mean(0), draws.std(0)
rmse = (mean - yte).pow(2).mean().sqrt().item()
print(f"mean spread over passes {spread.mean():.3f}")
print(json.dumps({"loss_first": trace[0], "loss_last": float(np.mean(trace[-20:])), "metric_name": "test_rmse",
                  "metric": rmse, "ok": bool(rmse < 0.85 and spread.mean() > 0.05)}))
