"""Two stages on 1-d signals: pre-train the encoder on a pretext task (which transform was applied?), then fine-tune on few labels."""
import argparse
import copy
import json
import math
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LENGTH = 64


def waves(n, rng):
    t = np.linspace(0, 1, LENGTH)
    y = rng.integers(0, 4, n)
    x = np.zeros((n, LENGTH))
    for i, k in enumerate(y):
        f, ph = rng.uniform(3, 6), rng.uniform(0, 2 * np.pi)
        arg = 2 * np.pi * f * t + ph
        x[i] = [np.sin(arg), np.sign(np.sin(arg)), 2 * ((f * t + ph) % 1) - 1, np.sin(arg + 6 * t ** 2 * np.pi)][k]
        x[i] *= rng.uniform(0.7, 1.3)
    return x + rng.normal(0, 0.2, x.shape), y


def pretext(x, rng):
    kind = rng.integers(0, 4, len(x))
    out = x.copy()
    for i, k in enumerate(kind):
        if k == 1:
            out[i] = np.convolve(out[i], np.ones(5) / 5, mode="same")
        elif k == 2:
            out[i] = np.roll(out[i], LENGTH // 2) * np.linspace(0, 1.8, LENGTH)
        elif k == 3:
            a = rng.integers(8, LENGTH - 24)
            out[i, a:a + 14] = 0
    return out, kind


def block(i, o, stride=1):
    return nn.Sequential(nn.Conv1d(i, o, 5, stride=stride, padding=2, bias=False), nn.BatchNorm1d(o), nn.ReLU(inplace=True))


class Encoder(nn.Module):
    def __init__(self, ch=20):
        super().__init__()
        self.stem = block(1, ch)
        self.stages = nn.Sequential(*[block(ch, ch, 2 if k in (2, 5) else 1) for k in range(9)])
        self.pool = nn.AdaptiveAvgPool1d(4)

    def forward(self, x):
        return self.pool(self.stages(self.stem(x))).flatten(1)


class Classifier(nn.Module):
    def __init__(self, encoder, n_out):
        super().__init__()
        self.encoder = encoder
        self.fc = nn.Linear(80, n_out)

    def forward(self, x):
        return self.fc(self.encoder(x))


def evaluate(model, loader):
    model.eval()
    hits = 0
    with torch.no_grad():
        for xb, yb in loader:
            hits += (model(xb).argmax(1) == yb).sum().item()
    return hits / len(loader.dataset)


def run_stage(name, model, train, valid, epochs, lr, args, log):
    if args.compile:
        model = torch.compile(model, backend=args.compile)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    ce = nn.CrossEntropyLoss()
    print(f"[{name}] before: valid acc {evaluate(model, valid):.3f}")
    best, state = -1.0, None
    for epoch in range(epochs):
        if args.variant == "fixed":
            model.train()
        for xb, yb in train:
            optimizer.zero_grad(set_to_none=True)
            loss = ce(model(xb), yb)
            loss.backward()
            optimizer.step()
            log.append(loss.item())
        scheduler.step()
        acc = evaluate(model, valid)
        if acc > best:
            best, state = acc, copy.deepcopy(model.state_dict())
        print(f"[{name}] epoch {epoch:2d} loss {loss.item():.4f} valid acc {acc:.3f}")
    model.load_state_dict(state)
    return best


def loader(x, y, batch, shuffle):
    ds = TensorDataset(torch.tensor(x, dtype=torch.float32).unsqueeze(1), torch.tensor(y))
    return DataLoader(ds, batch_size=batch, shuffle=shuffle, drop_last=shuffle)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default=os.environ.get("CASE_VARIANT", "faulty"))
    p.add_argument("--seed", type=int, default=int(os.environ.get("CASE_SEED", "0")))
    p.add_argument("--compile", default=os.environ.get("CASE_COMPILE", ""))
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    raw, _ = waves(1200, rng)
    px, py = pretext(raw, rng)
    fx, fy = waves(500, rng)
    log = []
    encoder = Encoder()
    pre = run_stage("pretrain", Classifier(encoder, 4), loader(px[:1000], py[:1000], 40, True),
                    loader(px[1000:], py[1000:], 100, False), 8, 0.05, args, log)
    fine = run_stage("finetune", Classifier(encoder, 4), loader(fx[:200], fy[:200], 20, True),
                     loader(fx[200:], fy[200:], 100, False), 10, 0.03, args, log)
    f = lambda v: round(float(v), 5) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(log[0]), "loss_last": f(np.mean(log[-10:])), "metric_name": "finetune_accuracy",
                      "metric": f(fine), "ok": bool(fine > 0.75)}))
