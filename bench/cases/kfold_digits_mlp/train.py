"""Stratified k-fold comparison of a configurable MLP on the digits data, plain SGD with momentum."""
import json
import math
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)

ACT = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU}


@dataclass
class HParams:
    hidden: tuple = (128, 96, 96, 64, 64)
    act: str = "relu" if VARIANT == "fixed" else "sigmoid"
    lr: float = 0.02
    momentum: float = 0.9
    weight_decay: float = 1e-4
    batch: int = 64
    epochs: int = 18
    folds: int = 4


def build(hp, n_in, n_out):
    mods, width = [], n_in
    for h in hp.hidden:
        mods += [nn.Linear(width, h), ACT[hp.act]()]
        width = h
    return nn.Sequential(*mods, nn.Linear(width, n_out))


def run_fold(k, hp, xtr, ytr, xva, yva):
    net = build(hp, xtr.shape[1], 10)
    model = torch.compile(net, backend=BACKEND) if BACKEND else net
    opt = torch.optim.SGD(net.parameters(), lr=hp.lr, momentum=hp.momentum, weight_decay=hp.weight_decay)
    ce = nn.CrossEntropyLoss()
    losses = []
    best, state = -1.0, None
    for epoch in range(hp.epochs):
        net.train()
        for idx in torch.randperm(len(xtr)).split(hp.batch):
            opt.zero_grad()
            loss = ce(model(xtr[idx]), ytr[idx])
            loss.backward()
            opt.step()
            losses.append(loss.item())
        net.eval()
        with torch.no_grad():
            acc = (model(xva).argmax(1) == yva).float().mean().item()
        if acc > best:
            best, state = acc, {n: t.clone() for n, t in net.state_dict().items()}
        if epoch % 6 == 5:
            print(f"fold {k} epoch {epoch + 1:2d} loss {np.mean(losses[-20:]):.4f} val acc {acc:.3f}")
    net.load_state_dict(state)
    return best, losses


def main():
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    hp = HParams()
    X, y = load_digits(return_X_y=True)
    scores, curve = [], []
    for k, (tr, va) in enumerate(StratifiedKFold(hp.folds, shuffle=True, random_state=SEED).split(X, y)):
        sc = StandardScaler().fit(X[tr])
        as_x = lambda i: torch.tensor(sc.transform(X[i]), dtype=torch.float32)
        as_y = lambda i: torch.tensor(y[i])
        s, c = run_fold(k, hp, as_x(tr), as_y(tr), as_x(va), as_y(va))
        scores.append(s)
        curve += c
    m = float(np.mean(scores))
    print(f"cv accuracy {m:.3f} +- {np.std(scores):.3f}")
    f = lambda v: round(v, 4) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(curve[0]), "loss_last": f(float(np.mean(curve[-10:]))),
                      "metric_name": "cv_accuracy", "metric": f(m), "ok": bool(m > 0.9)}))


if __name__ == "__main__":
    main()
