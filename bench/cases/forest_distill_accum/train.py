# Distil a random forest into a small MLP (soft class probabilities, tempered KL), gradients accumulated over micro-batches.
import json
import math
import os
from itertools import islice

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

env = os.environ.get
variant, seed, backend = env("CASE_VARIANT", "faulty"), int(env("CASE_SEED", "0")), env("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(seed)

hp = {
    "micro_batch": 16,
    "gradient_accumulation_steps": 32,
    "updates": 120,
    "lr": 0.12,
    "momentum": 0.9,
    "temperature": 2.0,
    "alpha": 0.5,
}

X, y = make_classification(6000, n_features=16, n_informative=8, n_redundant=2, n_classes=5, n_clusters_per_class=1,
                           class_sep=1.6, random_state=seed)
X = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
teacher = RandomForestClassifier(30, min_samples_leaf=5, random_state=seed).fit(X[:2500], y[:2500])
soft = teacher.predict_proba(X).astype(np.float32)
X, y, soft = torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(soft)
pool, held = slice(0, 5000), slice(5000, 6000)
print("teacher accuracy on held-out rows: %.3f" % (soft[held].argmax(1) == y[held]).float().mean().item())

student = nn.Sequential(nn.Linear(16, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 5))
if backend:
    student = torch.compile(student, backend=backend)
optimizer = torch.optim.SGD(student.parameters(), lr=hp["lr"], momentum=hp["momentum"], nesterov=True)


def micro_batches():
    g = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(5000, generator=g).split(hp["micro_batch"])


def distillation_loss(logits, probs, labels):
    T = hp["temperature"]
    teach = F.softmax(torch.log(probs + 1e-3) / T, dim=1)
    kd = F.kl_div(F.log_softmax(logits / T, dim=1), teach, reduction="batchmean") * T * T
    return hp["alpha"] * kd + (1 - hp["alpha"]) * F.cross_entropy(logits, labels)


def evaluate():
    with torch.no_grad():
        return (student(X[held]).argmax(1) == y[held]).float().mean().item()


def training_step(batches):
    total = 0.0
    for rows in batches:
        loss = distillation_loss(student(X[pool][rows]), soft[pool][rows], y[pool][rows])
        if variant == "fixed":
            loss = loss / hp["gradient_accumulation_steps"]
            total += loss.item()
        else:
            total += loss.item() / hp["gradient_accumulation_steps"]
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


stream = micro_batches()
curve = []
for update in range(1, hp["updates"] + 1):
    curve.append(training_step(islice(stream, hp["gradient_accumulation_steps"])))
    if update in (1, 2, 3, 5, 10) or update % 20 == 0:
        print(f"update {update:4d} | loss {curve[-1]:.4f} | held-out acc {evaluate():.3f}")

acc = evaluate()
show = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": show(curve[0]), "loss_last": show(curve[-1]), "metric_name": "student_accuracy", "metric": acc,
                  "ok": acc > 0.85}))
