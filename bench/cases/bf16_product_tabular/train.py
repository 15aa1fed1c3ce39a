# Product category from tabular features: residual MLP, AdamW with warm-up, bfloat16 compute.
import json
import math
import os
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from sklearn.datasets import make_classification

ENV = os.environ.get
SEED, FIXED = int(ENV("CASE_SEED", "0")), ENV("CASE_VARIANT", "faulty") == "fixed"
torch.set_num_threads(1)
torch.manual_seed(SEED)

cfg = dict(width=128, depth=2, lr=2e-5, warmup=50, steps=2400, batch=128, clip=1.0,
           param_dtype=torch.float32 if FIXED else torch.bfloat16)

X, y = make_classification(n_samples=5000, n_features=40, n_informative=24, n_redundant=6, n_classes=6,
                           n_clusters_per_class=2, class_sep=1.3, random_state=SEED)
X = (X - X[:4000].mean(0)) / X[:4000].std(0)
X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
train, test = (X[:4000], y[:4000]), (X[4000:], y[4000:])


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class TabNet(nn.Module):
    def __init__(self, d_in, d, depth, n_out):
        super().__init__()
        self.stem = nn.Linear(d_in, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, n_out)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


net = TabNet(40, cfg["width"], cfg["depth"], 6).to(cfg["param_dtype"])
model = torch.compile(net, backend=ENV("CASE_COMPILE")) if ENV("CASE_COMPILE") else net
opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"], weight_decay=0.01)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / cfg["warmup"]))


def step_loss(xb, yb):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(xb.to(cfg["param_dtype"]))
    return F.cross_entropy(out.float(), yb)


def evaluate():
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        return (model(test[0].to(cfg["param_dtype"])).float().argmax(1) == test[1]).float().mean().item()


hist = []
for s in range(cfg["steps"]):
    i = torch.randint(0, 4000, (cfg["batch"],))
    loss = step_loss(train[0][i], train[1][i])
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), cfg["clip"])
    opt.step()
    sched.step()
    hist.append(loss.item())
    if (s + 1) % 200 == 0:
        print(f"step {s + 1} loss {np.mean(hist[-200:]):.4f} grad_norm {norm.item():.3f} acc {evaluate():.3f}")

acc = evaluate()
fin = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(hist[0]), "loss_last": fin(float(np.mean(hist[-20:]))), "metric_name": "test_accuracy",
                  "metric": acc, "ok": acc > 0.65}))
