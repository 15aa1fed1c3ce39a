import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)


class ReverseGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lam):
        ctx.lam = lam
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.lam * g, None


class FeatureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.Flatten(),
                                  nn.Linear(48 * 16, 64), nn.ReLU())

    def forward(self, x):
        return self.body(x)


class AdversarialAdapter(nn.Module):
    """Label branch on the source domain, domain branch behind the reversal on both."""

    def __init__(self):
        super().__init__()
        self.features = FeatureNet()
        self.label_head = nn.Linear(64, 10)
        self.domain_head = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, x):
        z = self.features(x)
        return self.label_head(z), z


def to_target(x, g):
    """Second scanner: contrast change plus background and noise."""
    y = 0.25 + 0.6 * x + 0.08 * torch.randn(x.shape, generator=g)
    return y.clamp(0, 1)


d = load_digits()
x = torch.tensor(d.images / 16.0, dtype=torch.float32)[:, None]
y = torch.tensor(d.target)
g = torch.Generator().manual_seed(SEED)
perm = torch.randperm(len(x), generator=g)
x, y = x[perm], y[perm]
xs, ys = x[:700], y[:700]
xt = to_target(x[700:1300], g)
x_val, y_val = to_target(x[1300:], g), y[1300:]

net = AdversarialAdapter()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
optimizer = torch.optim.SGD([
    {"params": net.features.parameters()},
    {"params": net.label_head.parameters(), "lr": 0.08},
    {"params": net.domain_head.parameters(), "lr": 0.08},
], lr=0.04, momentum=0.9, nesterov=True)

STEPS, hist = 380, []
for step in range(STEPS):
    p = step / STEPS
    lam = 0.3 * (2 / (1 + math.exp(-10 * p)) - 1)
    i, j = torch.randint(0, len(xs), (48,)), torch.randint(0, len(xt), (48,))
    logits, z = model(torch.cat([xs[i], xt[j]]))
    cls = F.cross_entropy(logits[:48], ys[i])
    dom_logit = net.domain_head(ReverseGrad.apply(z, lam)).squeeze(1)
    dom_y = torch.cat([torch.ones(48), torch.zeros(48)])
    dom = F.binary_cross_entropy_with_logits(dom_logit, dom_y)
    loss = cls + dom
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hist.append(loss.item())
    if step % 50 == 0:
        with torch.no_grad():
            dacc = ((dom_logit > 0).float() == dom_y).float().mean().item()
        print(f"step {step} class {cls.item():.3f} domain {dom.item():.3f} (acc {dacc:.2f}) lambda {lam:.2f}")

net.eval()
with torch.no_grad():
    acc = (net(x_val)[0].argmax(1) == y_val).float().mean().item()
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-10:])),
                  "metric_name": "target_domain_accuracy", "metric": acc, "ok": acc > 0.85}))
