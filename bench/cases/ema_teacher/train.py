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

import copy
student = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4)); teacher = copy.deepcopy(student).requires_grad_(False)
model = build(student); X = torch.randn(1000, 10); y = X[:, :4].argmax(1)
opt = torch.optim.Adam(student.parameters(), 3e-3); ls = []
for s in range(300):
    i = torch.randint(0, 1000, (64,)); x = X[i]
    with torch.no_grad(): soft = teacher(x + 0.1 * torch.randn_like(x)).softmax(-1)
    out = model(x)
    loss = F.cross_entropy(out, y[i]) + 0.3 * F.mse_loss(out.softmax(-1), soft)
    opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
    with torch.no_grad():
        for p, q in zip(student.parameters(), teacher.parameters()): q.lerp_(p, 0.05)
acc = (teacher(X).argmax(1) == y).float().mean().item()
report(ls, "teacher_accuracy", acc, acc > 0.85)
