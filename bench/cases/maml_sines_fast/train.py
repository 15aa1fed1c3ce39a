"""Second-order meta-learning of sine regression; fast weights carry a task dimension."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class FastMLP(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        sizes = [1, width, width, 1]
        self.W = nn.ParameterList(nn.Parameter((2 * torch.rand(i, o) - 1) / math.sqrt(i)) for i, o in zip(sizes, sizes[1:]))
        self.b = nn.ParameterList(nn.Parameter((2 * torch.rand(1, o) - 1) / math.sqrt(i)) for i, o in zip(sizes, sizes[1:]))

    def forward(self, x, fast=None):
        weights = list(zip(self.W, self.b)) if fast is None else fast
        for k, (w, b) in enumerate(weights):
            x = x @ w + b
            if k < len(weights) - 1:
                x = F.relu(x)
        return x


class MetaLearner:
    def __init__(self, seed, backend):
        self.net = FastMLP()
        self.call = torch.compile(self.net, backend=backend) if backend else self.net
        self.inner_lr = 0.03
        self.meta_opt = torch.optim.Adam(self.net.parameters(), lr=3e-3)
        self.sched = torch.optim.lr_scheduler.StepLR(self.meta_opt, 500, 0.5)

    def tasks(self, n):
        amp, phase = 0.5 + 3.5 * torch.rand(n, 1, 1), math.pi * torch.rand(n, 1, 1)
        xs, xq = torch.rand(n, 10, 1) * 10 - 5, torch.rand(n, 20, 1) * 10 - 5
        return xs, amp * torch.sin(xs - phase), xq, amp * torch.sin(xq - phase)

    def adapt(self, xs, ys, steps, second_order):
        n = len(xs)
        fast = [(w.expand(n, *w.shape), b.expand(n, *b.shape)) for w, b in zip(self.net.W, self.net.b)]
        for _ in range(steps):
            err = (self.call(xs, fast) - ys).pow(2).mean((1, 2)).sum()
            flat = [t for pair in fast for t in pair]
            grads = torch.autograd.grad(err, flat, create_graph=second_order)
            flat = [t - self.inner_lr * g for t, g in zip(flat, grads)]
            fast = list(zip(flat[::2], flat[1::2]))
        return fast

    def meta_step(self, n=16, steps=2):
        xs, ys, xq, yq = self.tasks(n)
        fast = self.adapt(xs, ys, steps, True)
        loss = F.mse_loss(self.call(xq, fast), yq)
        self.meta_opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.meta_opt.step()
        self.sched.step()
        return loss.item()

    def evaluate(self, steps):
        xs, ys, xq, yq = self.tasks(400)
        fast = self.adapt(xs, ys, steps, False)
        with torch.no_grad():
            plain = F.mse_loss(self.call(xq), yq).item() if steps == 0 else None
            return F.mse_loss(self.call(xq, fast), yq).item() if steps else plain


def main():
    seed, backend = int(os.environ.get("CASE_SEED", "0")), os.environ.get("CASE_COMPILE", "")
    torch.set_num_threads(1)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    learner = MetaLearner(seed, backend)
    log = []
    for it in range(1500):
        log.append(learner.meta_step())
        if it % 100 == 0:
            print(f"iter {it:5d} query mse {log[-1]:.4f} (mean of 50: {np.mean(log[-50:]):.4f})")
    before, after = learner.evaluate(0), learner.evaluate(5)
    print(f"new tasks: no adaptation {before:.4f}, five gradient steps {after:.4f}")
    f = lambda v: round(float(v), 4) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(log[0]), "loss_last": f(np.mean(log[-20:])), "metric_name": "mse_after_adaptation",
                      "metric": f(after), "ok": bool(after < 0.4 * before)}))


if __name__ == "__main__":
    main()
