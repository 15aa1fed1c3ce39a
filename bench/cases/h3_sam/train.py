"""Wine classification with sharpness-aware minimisation and a cosine rate with warm restarts."""
import json
import os

import torch
import torch.nn as nn
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)


class SAM:
    def __init__(self, params, base, rho=0.15):
        self.params, self.base, self.rho = list(params), base, rho
        self.shift = None

    @torch.no_grad()
    def climb(self):
        norm = torch.norm(torch.stack([p.grad.norm() for p in self.params])) + 1e-12
        self.shift = [p.grad * (self.rho / norm) for p in self.params]
        for p, e in zip(self.params, self.shift):
            p.add_(e)
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p, e in zip(self.params, self.shift):
            p.sub_(e)
        self.base.step()
        self.base.zero_grad()


x, y = load_wine(return_X_y=True)
xt, xv, yt, yv = train_test_split(x, y, test_size=0.35, random_state=SEED, stratify=y)
sc = StandardScaler().fit(xt)
xt, xv = [torch.tensor(sc.transform(a), dtype=torch.float32) for a in (xt, xv)]
yt, yv = torch.tensor(yt), torch.tensor(yv)
model = nn.Sequential(nn.Linear(13, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 3))
net = torch.compile(model, backend=BACKEND) if BACKEND else model
base = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.9)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(base, T_0=40)
sam = SAM(model.parameters(), base)
ce = nn.CrossEntropyLoss(label_smoothing=0.1)
log = []
for step in range(200):
    idx = torch.randint(len(xt), (24,))
    first = ce(net(xt[idx]), yt[idx])
    first.backward()
    sam.climb()
    ce(net(xt[idx]), yt[idx]).backward()
    sam.descend()
    sched.step()
    log.append(first.item())
    if step % 40 == 39:
        print(f"cycle {step // 40 + 1} loss {first.item():.4f} lr {sched.get_last_lr()[0]:.4f}")
with torch.no_grad():
    acc = (model(xv).argmax(1) == yv).float().mean().item()
print(json.dumps({"loss_first": log[0], "loss_last": log[-1], "metric_name": "test_accuracy", "metric": acc, "ok": acc > 0.92}))
