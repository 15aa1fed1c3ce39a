"""Face-verification style training on small images: backbone with triplet loss, classifier on top."""
import json
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)


class Backbone(nn.Module):
    def __init__(self, dim=20):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, 3, padding=1)
        self.c2 = nn.Conv2d(12, 24, 3, stride=2, padding=1)
        self.fc = nn.Linear(24 * 16, dim)

    def forward(self, x):
        x = F.elu(self.c1(x))
        x = F.elu(self.c2(x))
        return F.normalize(self.fc(x.flatten(1)), dim=1)


raw = load_digits()
images = torch.tensor(raw.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
target = torch.tensor(raw.target)
order = torch.randperm(len(target))
images, target = images[order], target[order]
tr, te = slice(0, 1300), slice(1300, None)
by_class = [torch.nonzero(target[tr] == c).flatten() for c in range(10)]

backbone = Backbone()
classifier = nn.Linear(20, 10)
net = torch.compile(backbone, backend=BACKEND) if BACKEND else backbone
cnn_optimizer = torch.optim.SGD(backbone.parameters(), lr=0.15, momentum=0.9)
cls_optimizer = torch.optim.SGD(classifier.parameters(), lr=0.12)


def sample_triplets(n):
    a, p, neg = [], [], []
    for _ in range(n):
        c = int(torch.randint(10, ()))
        d = (c + 1 + int(torch.randint(9, ()))) % 10
        pick = by_class[c][torch.randint(len(by_class[c]), (2,))]
        a.append(pick[0]); p.append(pick[1])
        neg.append(by_class[d][torch.randint(len(by_class[d]), ())])
    return torch.stack(a), torch.stack(p), torch.stack(neg)


def retrieval_accuracy():
    with torch.no_grad():
        g, q = net(images[tr]), net(images[te])
        return (target[tr][(q @ g.T).argmax(1)] == target[te]).float().mean().item()


log = []
for step in range(220):
    a, p, n = sample_triplets(36)
    emb = net(images[torch.cat([a, p, n])])
    ea, ep, en = emb.chunk(3)
    triplet = F.relu((ea - ep).pow(2).sum(1) - (ea - en).pow(2).sum(1) + 0.4).mean()
    ce = F.cross_entropy(6 * classifier(ea), target[a])
    loss = triplet + 0.5 * ce
    if VARIANT == "fixed":
        cnn_optimizer.zero_grad()
    cls_optimizer.zero_grad()
    loss.backward()
    cnn_optimizer.step()
    cls_optimizer.step()
    log.append(loss.item())
    if step % 40 == 0:
        print(f"step {step} triplet {triplet.item():.3f} ce {ce.item():.3f}")

acc = retrieval_accuracy()
num = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": num(log[0]), "loss_last": num(sum(log[-20:]) / 20), "metric_name": "retrieval_accuracy",
                  "metric": acc, "ok": acc > 0.93 and sum(log[-20:]) / 20 < 0.15}))
