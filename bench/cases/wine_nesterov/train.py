# Wine cultivar classification, plain SGD with a heavy momentum term and small steps.
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

SEED = int(os.environ.get("CASE_SEED", "0"))
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
torch.set_num_threads(1)

X, y = load_wine(return_X_y=True)
X_tr, X_te, y_tr, y_te = train_test_split(X, y, test_size=0.3, stratify=y, random_state=SEED)
sc = StandardScaler().fit(X_tr)
X_tr, X_te = (torch.tensor(sc.transform(a), dtype=torch.float32) for a in (X_tr, X_te))
y_tr, y_te = torch.tensor(y_tr), torch.tensor(y_te)

net = nn.Sequential(nn.Linear(13, 32), nn.ELU(), nn.Linear(32, 16), nn.ELU(), nn.Linear(16, 3))
backend = os.environ.get("CASE_COMPILE", "")
model = torch.compile(net, backend=backend) if backend else net
opt = torch.optim.SGD(net.parameters(), lr=0.002, momentum=0.99, nesterov=True)
loss_fn = nn.CrossEntropyLoss()

curve = []
for epoch in range(300):
    pick = torch.randperm(len(X_tr))[:64]
    opt.zero_grad()
    loss = loss_fn(model(X_tr[pick]), y_tr[pick])
    loss.backward()
    opt.step()
    curve.append(loss.item())
    if (epoch + 1) % 50 == 0:
        print("epoch", epoch + 1, "loss", round(loss.item(), 5))

with torch.no_grad():
    acc = (model(X_te).argmax(1) == y_te).float().mean().item()
num = lambda v: round(v, 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": num(curve[0]), "loss_last": num(curve[-1]), "metric_name": "test_accuracy", "metric": num(acc),
                  "ok": acc > 0.9}))
