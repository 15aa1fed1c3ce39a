import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(seed)
np.random.seed(seed)

# settings: strong regularisation, mixup + label smoothing + wide dropout
ALPHA, SMOOTH, DROP, STEPS, BATCH = 1.0, 0.1, 0.6, 350, 64

images, target = load_digits(return_X_y=True)
xa, xb, ya, yb = train_test_split(images / 8.0 - 1.0, target, test_size=0.25, random_state=seed)
xa, xb = (torch.tensor(v, dtype=torch.float32).view(-1, 1, 8, 8) for v in (xa, xb))
ya, yb = torch.tensor(ya), torch.tensor(yb)

net = nn.Sequential(
    nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
    nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(512, 256), nn.ReLU(), nn.Dropout(DROP), nn.Linear(256, 10))
model = torch.compile(net, backend=backend) if backend else net
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.05, total_steps=STEPS)


def evaluate():
    net.eval()
    with torch.no_grad():
        out = net(xb)
    net.train()
    return F.cross_entropy(out, yb).item(), (out.argmax(1) == yb).float().mean().item()


log = []
for step in range(STEPS):
    idx = torch.randint(0, len(xa), (BATCH,))
    lam = np.random.beta(ALPHA, ALPHA)
    perm = torch.randperm(BATCH)
    mixed = lam * xa[idx] + (1 - lam) * xa[idx][perm]
    out = model(mixed)
    loss = lam * F.cross_entropy(out, ya[idx], label_smoothing=SMOOTH) + (1 - lam) * F.cross_entropy(out, ya[idx][perm], label_smoothing=SMOOTH)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    log.append(loss.item())
    if step % 50 == 0:
        vl, va = evaluate()
        print(f"{step:3d} train {np.mean(log[-50:]):.3f}  val loss {vl:.3f}  val acc {va:.3f}")

vl, acc = evaluate()
print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-20:])), "metric_name": "val_acc", "metric": acc, "ok": acc > 0.95}))
