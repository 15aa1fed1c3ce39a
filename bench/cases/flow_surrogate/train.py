"""Point-cloud surrogate: predicts (u, v, p) at points around an ellipse from coordinates and global conditions."""
import argparse
import json
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--points", type=int, default=48)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--surf-weight", type=float, default=10.0)
    p.add_argument("--max-norm", type=float, default=0.01)
    return p.parse_args([])


def sample_cases(n, pts, gen):
    r = lambda *s: torch.rand(*s, generator=gen)
    ratio, alpha, speed = 0.4 + 0.5 * r(n, 1), 0.8 * (r(n, 1) - 0.5), 0.6 + 0.8 * r(n, 1)
    theta = 2 * math.pi * r(n, pts)
    dist = 1 + 1.5 * r(n, pts) ** 2
    dist[:, : pts // 3] = 1.0
    x, y = dist * theta.cos(), dist * ratio * theta.sin()
    decay = 1 / dist ** 2
    rel = theta - alpha
    u = speed * (alpha.cos() - decay * (2 * rel).cos())
    v = speed * (alpha.sin() - decay * (2 * rel).sin())
    q = speed ** 2 * (1 - decay * 2 * rel.sin() ** 2)
    g = torch.cat([(ratio - 0.65) / 0.15, alpha / 0.23, (speed - 1) / 0.23], 1)
    feats = torch.cat([torch.stack([x, y, decay, theta.cos(), theta.sin()], -1), g[:, None].expand(-1, pts, -1)], -1)
    return feats, torch.stack([u, v, q], -1), dist == 1.0


class ResBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, h):
        return h + self.b(F.gelu(self.a(self.norm(h))))


class Surrogate(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.lift = nn.Linear(8, d)
        self.pool = nn.Linear(d, d)
        self.blocks = nn.ModuleList(ResBlock(d) for _ in range(2))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, 3)

    def forward(self, f):
        h = F.gelu(self.lift(f))
        h = h + self.pool(h.mean(1, keepdim=True))
        for b in self.blocks:
            h = b(h)
        return self.head(self.norm(h))


def main():
    args = get_args()
    variant, seed = os.environ.get("CASE_VARIANT", "faulty"), int(os.environ.get("CASE_SEED", "0"))
    backend = os.environ.get("CASE_COMPILE", "")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    gen = torch.Generator().manual_seed(seed)

    train = sample_cases(400, args.points, gen)
    val = sample_cases(100, args.points, gen)
    max_norm = 5.0 if variant == "fixed" else args.max_norm

    model = Surrogate()
    if backend:
        model = torch.compile(model, backend=backend)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    history = []
    for step in range(args.steps):
        idx = torch.randint(0, 400, (args.batch,))
        f, y, surf = (t[idx] for t in train)
        err = (model(f) - y) ** 2
        loss = err[~surf].mean() + args.surf_weight * err[surf].mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=max_norm)
        opt.step()
        history.append(loss.item())
        if step % 50 == 0:
            print(f"step {step:4d} | loss {loss.item():8.4f}")

    with torch.no_grad():
        pred, y = model(val[0]), val[1]
        r2 = (1 - ((pred - y) ** 2).sum((0, 1)) / ((y - y.mean((0, 1))) ** 2).sum((0, 1))).mean().item()
    f = lambda v: v if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(history[0]), "loss_last": f(sum(history[-10:]) / 10),
                      "metric_name": "val_r2", "metric": f(r2), "ok": r2 > 0.9}))


if __name__ == "__main__":
    main()
