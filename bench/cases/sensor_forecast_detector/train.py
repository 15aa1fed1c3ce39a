"""One-step-ahead forecaster for a machine's vibration channel; large forecast errors are reported as anomalies."""
import json
import math
import os
import random

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

CFG = {
    "variant": os.environ.get("CASE_VARIANT", "faulty"),
    "seed": int(os.environ.get("CASE_SEED", "0")),
    "backend": os.environ.get("CASE_COMPILE", ""),
    "window": 24, "horizon": 1, "batch": 64, "epochs": 8, "lr": 2e-3,
}


def record(n, rng, faults=False):
    t = np.arange(n)
    wobble = np.cumsum(rng.normal(0, 0.02, n))
    s = np.sin(2 * np.pi * t / 17 + wobble) + 0.5 * np.sin(2 * np.pi * t / 6.3 + 0.4) + rng.normal(0, 0.08, n)
    flag = np.zeros(n, dtype=bool)
    if faults:
        for _ in range(n // 60):
            k = rng.integers(40, n - 5)
            s[k] += rng.choice([-1, 1]) * rng.uniform(0.7, 1.2)
            flag[k] = True
    return s.astype(np.float32), flag


class Windows(Dataset):
    def __init__(self, series, window, horizon):
        self.x = np.lib.stride_tricks.sliding_window_view(series, window)[:-horizon]
        self.y = series[window + horizon - 1:]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i].copy()), self.y[i]


class PatchForecaster(nn.Module):
    def __init__(self, window, horizon, patch=4, d=32):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch, d)
        self.pos = nn.Parameter(torch.randn(window // patch, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(d * (window // patch)), nn.Linear(d * (window // patch), horizon))

    def forward(self, x):
        h = self.embed(x.unflatten(1, (-1, self.patch))) + self.pos
        return self.head(self.encoder(h).flatten(1))


def penalty(pred, target, delta=1.0):
    err = pred - target
    small = err.abs().clamp(max=delta)
    return (0.5 * small ** 2 + delta * (err.abs() - small)).mean()


def train(model, params, loader):
    opt = optim.AdamW(params, lr=CFG["lr"], weight_decay=1e-4)
    sched = optim.lr_scheduler.OneCycleLR(opt, CFG["lr"], total_steps=CFG["epochs"] * len(loader))
    curve = []
    for epoch in range(1, CFG["epochs"] + 1):
        model.train()
        for xb, yb in loader:
            if CFG["variant"] == "fixed":
                yb = yb.unsqueeze(-1)
            loss = penalty(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, 1.0)
            opt.step()
            sched.step()
            curve.append(loss.item())
        print(f"epoch {epoch:02d}/{CFG['epochs']} train loss {np.mean(curve[-len(loader):]):.5f} lr {sched.get_last_lr()[0]:.2e}")
    return curve


@torch.no_grad()
def errors(model, ds):
    model.eval()
    out = [(model(xb).squeeze(-1) - yb).abs() for xb, yb in DataLoader(ds, batch_size=256)]
    return torch.cat(out).numpy()


def main():
    torch.set_num_threads(1)
    random.seed(CFG["seed"])
    np.random.seed(CFG["seed"])
    torch.manual_seed(CFG["seed"])
    rng = np.random.default_rng(CFG["seed"])
    normal, _ = record(3000, rng)
    check, flags = record(1500, rng, faults=True)
    mean, std = normal.mean(), normal.std()
    ds = Windows((normal - mean) / std, CFG["window"], CFG["horizon"])
    loader = DataLoader(ds, batch_size=CFG["batch"], shuffle=True, drop_last=True)
    net = PatchForecaster(CFG["window"], CFG["horizon"])
    model = torch.compile(net, backend=CFG["backend"]) if CFG["backend"] else net
    curve = train(model, list(net.parameters()), loader)
    test = Windows((check - mean) / std, CFG["window"], CFG["horizon"])
    e = errors(model, test)
    mask = flags[CFG["window"] + CFG["horizon"] - 1:]
    r2 = 1 - float((errors(model, ds) ** 2).mean())
    auc = roc_auc_score(mask, e)
    print(f"detector AUROC {auc:.3f}, forecast R2 on normal data {r2:.3f}")
    f = lambda v: round(float(v), 5) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(curve[0]), "loss_last": f(np.mean(curve[-10:])), "metric_name": "forecast_r2",
                      "metric": f(r2), "ok": bool(r2 > 0.8 and auc > 0.85)}))


if __name__ == "__main__":
    main()
