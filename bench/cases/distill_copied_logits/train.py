"""Distil a wide network into a narrow one with soft targets."""
import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
torch.manual_seed(int(os.environ.get("CASE_SEED", "0")))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)

bunch = load_digits()
x = torch.tensor(bunch.data, dtype=torch.float32) / 16
y = torch.tensor(bunch.target)
perm = torch.randperm(len(y))
x, y = x[perm], y[perm]
xtr, ytr, xte, yte = x[:1400], y[:1400], x[1400:], y[1400:]


def mlp(width):
    return nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10))


class DistillationPolicy:
    """Runs both networks and remembers their last outputs."""

    def __init__(self, student, teacher, temperature=3.0):
        self.student, self.teacher, self.t = student, teacher, temperature
        self.student_out = None
        self.teacher_out = None

    def forward(self, batch):
        with torch.no_grad():
            self.teacher_out = self.teacher(batch)
        out = self.student(batch)
        if VARIANT == "fixed":
            self.student_out = out
        else:
            self.student_out = out.detach().clone().requires_grad_(True)
        return out

    def loss(self):
        soft = F.softmax(self.teacher_out / self.t, dim=1)
        logp = F.log_softmax(self.student_out / self.t, dim=1)
        return F.kl_div(logp, soft, reduction="batchmean") * self.t ** 2


teacher = mlp(160)
opt_t = torch.optim.Adam(teacher.parameters(), lr=2e-3)
for _ in range(160):
    i = torch.randint(len(xtr), (100,))
    opt_t.zero_grad()
    F.cross_entropy(teacher(xtr[i]), ytr[i]).backward()
    opt_t.step()
teacher.eval()
print("teacher accuracy", (teacher(xte).argmax(1) == yte).float().mean().item())

student = mlp(24)
run_student = torch.compile(student, backend=BACKEND) if BACKEND else student
policy = DistillationPolicy(run_student, teacher)
opt = torch.optim.Adam(student.parameters(), lr=4e-3)
losses = []
for it in range(320):
    i = torch.randint(len(xtr), (64,))
    opt.zero_grad()
    policy.forward(xtr[i])
    loss = policy.loss()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if it % 60 == 0:
        print(f"iter {it} kd loss {loss.item():.4f}")
acc = (student(xte).argmax(1) == yte).float().mean().item()
print(json.dumps({"loss_first": losses[0], "loss_last": sum(losses[-20:]) / 20, "metric_name": "student_accuracy",
                  "metric": acc, "ok": acc > 0.9}))
