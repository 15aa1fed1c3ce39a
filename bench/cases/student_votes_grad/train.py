"""Private aggregation of teachers: several teachers vote with noise, a student learns from the votes."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")


def mlp(width):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def noisy_votes(teachers, x, scale=0.3):
    with torch.no_grad():
        votes = sum(nn.functional.one_hot(t(x).argmax(1), 10).float() for t in teachers)
    return (votes + scale * torch.randn_like(votes)).argmax(1)


def main():
    torch.manual_seed(SEED)
    np.random.seed(SEED)
    torch.set_num_threads(1)
    d = load_digits()
    x = torch.tensor(d.data / 16.0, dtype=torch.float32)
    y = torch.tensor(d.target)
    order = torch.randperm(len(x))
    x, y = x[order], y[order]
    private, public, test = slice(0, 1000), slice(1000, 1400), slice(1400, None)

    criterion = nn.CrossEntropyLoss()
    teachers = [mlp(32) for _ in range(4)]
    shards = torch.arange(1000).chunk(4)
    teacher_opts = [torch.optim.Adam(t.parameters(), lr=1e-2) for t in teachers]
    student = mlp(64)
    student_model = torch.compile(student, backend=BACKEND) if BACKEND else student
    student_opt = torch.optim.SGD(student.parameters(), lr=0.1)

    losses = []
    for round_ in range(50):
        for t, topt, shard in zip(teachers, teacher_opts, shards):
            pick = shard[torch.randint(0, len(shard), (64,))]
            topt.zero_grad()
            criterion(t(x[private][pick]), y[private][pick]).backward()
            topt.step()
        if round_ < 10:
            continue
        for _ in range(5):
            pick = torch.randint(0, 400, (64,))
            inputs = x[public][pick]
            labels = noisy_votes(teachers, inputs)
            loss = criterion(student_model(inputs), labels)
            if VARIANT == "fixed":
                student_opt.zero_grad()
            loss.backward()
            student_opt.step()
            losses.append(loss.item())
        if round_ % 10 == 0:
            print(f"round {round_} student loss {losses[-1]:.4f}")

    student.eval()
    with torch.no_grad():
        acc = (student(x[test]).argmax(1) == y[test]).float().mean().item()
        tacc = (noisy_votes(teachers, x[test], 0.0) == y[test]).float().mean().item()
    print(f"teachers {tacc:.3f} student {acc:.3f}")
    r = lambda v: round(v, 5) if math.isfinite(v) else None
    print(json.dumps({"loss_first": r(losses[0]), "loss_last": r(float(np.mean(losses[-10:]))),
                      "metric_name": "student_accuracy", "metric": r(acc), "ok": bool(acc > 0.82)}))


if __name__ == "__main__":
    main()
