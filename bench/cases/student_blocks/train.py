"""Distil a grating-orientation teacher into a thinner student built from BasicConv2d blocks."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
N_CLASS, PX = 6, 16


def gratings(n, gen):
    y = torch.randint(0, N_CLASS, (n,), generator=gen)
    angle = y * math.pi / N_CLASS + 0.08 * torch.randn(n, generator=gen)
    freq = 1.2 + 0.3 * torch.rand(n, generator=gen)
    phase = 2 * math.pi * torch.rand(n, generator=gen)
    r = torch.arange(PX, dtype=torch.float32) - PX / 2
    u = torch.cos(angle)[:, None, None] * r[None, None, :] + torch.sin(angle)[:, None, None] * r[None, :, None]
    img = torch.sin(freq[:, None, None] * u + phase[:, None, None]) + 0.5 * torch.randn(n, PX, PX, generator=gen)
    return img.unsqueeze(1), y


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 24, 5, padding=2)
        self.c2 = nn.Conv2d(24, 32, 3, padding=1)
        self.fc = nn.Linear(32, N_CLASS)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.relu(self.c2(x))
        return self.fc(x.mean((2, 3)))


class BasicConv2d(nn.Module):
    def __init__(self, in_planes, out_planes, kernel_size, stride=1, padding=0, dilation=1):
        super().__init__()
        self.conv = nn.Conv2d(in_planes, out_planes, kernel_size, stride, padding, dilation, bias=False)
        self.bn = nn.BatchNorm2d(out_planes)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.conv(x)
        x = self.bn(x)
        if VARIANT == "fixed":
            x = self.relu(x)
        return x


class Student(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.block1 = BasicConv2d(1, w, 5, padding=2)
        self.block2 = BasicConv2d(w, w, 3, stride=2, padding=1)
        self.block3 = BasicConv2d(w, 2 * w, 3, padding=2, dilation=2)
        self.head = nn.Linear(2 * w, N_CLASS)

    def forward(self, x):
        x = self.block3(self.block2(self.block1(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def batches(x, y, size, gen):
    perm = torch.randperm(len(x), generator=gen)
    for i in range(0, len(x) - size + 1, size):
        yield x[perm[i:i + size]], y[perm[i:i + size]]


@torch.no_grad()
def accuracy(model, x, y):
    was = model.training
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train(was)
    return acc


def kd_loss(s, t, y, T=3.0, alpha=0.8):
    soft = F.kl_div(F.log_softmax(s / T, 1), F.softmax(t / T, 1), reduction="batchmean") * T * T
    return alpha * soft + (1 - alpha) * F.cross_entropy(s, y)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    gen = torch.Generator().manual_seed(SEED + 1)
    x, y = gratings(1600, gen)
    xt, yt = gratings(400, gen)

    teacher = Teacher()
    opt = torch.optim.Adam(teacher.parameters(), lr=5e-3)
    for epoch in range(5):
        for bx, by in batches(x, y, 32, gen):
            loss = F.cross_entropy(teacher(bx), by)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"teacher epoch {epoch} loss {loss.item():.4f} acc {accuracy(teacher, xt, yt):.3f}")
    teacher.eval().requires_grad_(False)

    net = Student()
    student = torch.compile(net, backend=BACKEND) if BACKEND else net
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.PolynomialLR(opt, total_iters=10, power=0.9)
    curve = []
    for epoch in range(10):
        net.train()
        for bx, by in batches(x, y, 32, gen):
            with torch.no_grad():
                t = teacher(bx)
            loss = kd_loss(student(bx), t, by)
            opt.zero_grad()
            loss.backward()
            opt.step()
            curve.append(loss.item())
        sched.step()
        acc = accuracy(net, xt, yt)
        print(f"student epoch {epoch} kd loss {np.mean(curve[-50:]):.4f} acc {acc:.3f}")
    fin = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": fin(curve[0]), "loss_last": fin(np.mean(curve[-10:])),
                      "metric_name": "student_accuracy", "metric": fin(acc), "ok": bool(acc > 0.85)}))


if __name__ == "__main__":
    main()
