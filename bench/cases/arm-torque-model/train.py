"""Learn the inverse dynamics (joint torques) of a planar 2-link arm for feed-forward control."""
import json
import os

import numpy as np
import torch
import torch.nn as nn

SEED = int(os.environ.get("CASE_SEED", "0"))
FIXED = os.environ.get("CASE_VARIANT", "faulty") == "fixed"
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)


class TwoLinkArm:
    m1, m2, l1, l2, g = 1.2, 0.8, 0.5, 0.4, 9.81

    def torques(self, q, dq, ddq):
        c2, s2 = np.cos(q[:, 1]), np.sin(q[:, 1])
        a = self.m2 * self.l1 * self.l2
        m11 = (self.m1 + self.m2) * self.l1 ** 2 + self.m2 * self.l2 ** 2 + 2 * a * c2
        m12 = self.m2 * self.l2 ** 2 + a * c2
        m22 = self.m2 * self.l2 ** 2
        h1 = -a * s2 * (2 * dq[:, 0] * dq[:, 1] + dq[:, 1] ** 2)
        h2 = a * s2 * dq[:, 0] ** 2
        g2 = self.m2 * self.g * self.l2 * np.cos(q[:, 0] + q[:, 1])
        g1 = (self.m1 + self.m2) * self.g * self.l1 * np.cos(q[:, 0]) + g2
        t1 = m11 * ddq[:, 0] + m12 * ddq[:, 1] + h1 + g1
        t2 = m12 * ddq[:, 0] + m22 * ddq[:, 1] + h2 + g2
        return np.stack([t1, t2], 1)


def record_trajectories(n):
    q = np.random.uniform(-np.pi, np.pi, (n, 2))
    dq = np.random.normal(0, 1.5, (n, 2))
    ddq = np.random.normal(0, 2.0, (n, 2))
    tau = TwoLinkArm().torques(q, dq, ddq) + np.random.normal(0, 0.05, (n, 2))
    feats = np.concatenate([np.sin(q), np.cos(q), dq, ddq], 1)
    return feats.astype(np.float32), tau.astype(np.float32)


class Standardizer:
    def __init__(self, arr):
        self.mu, self.sd = arr.mean(0), arr.std(0)

    def __call__(self, arr):
        return torch.from_numpy((arr - self.mu) / self.sd)


class DynamicsBlock(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out)
        self.act = nn.ReLU() if FIXED else nn.Sigmoid()

    def forward(self, x):
        return self.act(self.lin(x))


class InverseDynamicsNet(nn.Module):
    def __init__(self, d_in=8, width=128, depth=5, joints=2):
        super().__init__()
        dims = [d_in] + [width] * depth
        self.trunk = nn.ModuleList([DynamicsBlock(a, b) for a, b in zip(dims[:-1], dims[1:])])
        self.torque = nn.Linear(width, joints)

    def forward(self, x):
        for block in self.trunk:
            x = block(x)
        return self.torque(x)


def minibatches(n, size):
    order = torch.randperm(n)
    for i in range(0, n - size + 1, size):
        yield order[i:i + size]


def main():
    X, T = record_trajectories(5000)
    fx, ft = Standardizer(X[:4000]), Standardizer(T[:4000])
    xtr, ttr, xte, tte = fx(X[:4000]), ft(T[:4000]), fx(X[4000:]), ft(T[4000:])

    net = InverseDynamicsNet()
    if BACKEND:
        net = torch.compile(net, backend=BACKEND)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[9], gamma=0.3)
    huber = nn.SmoothL1Loss()

    losses = []
    for epoch in range(12):
        net.train()
        for idx in minibatches(len(xtr), 128):
            loss = huber(net(xtr[idx]), ttr[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        net.eval()
        with torch.no_grad():
            pred = net(xte)
            nmse = ((pred - tte) ** 2).mean(0) / tte.var(0)
        if epoch % 3 == 2:
            print(f"epoch {epoch + 1}: loss {np.mean(losses[-31:]):.4f} nMSE shoulder {nmse[0]:.3f} elbow {nmse[1]:.3f}")

    r2 = 1.0 - nmse.mean().item()
    print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-31:])),
                      "metric_name": "test_r2", "metric": r2, "ok": bool(r2 > 0.9)}))


if __name__ == "__main__":
    main()
