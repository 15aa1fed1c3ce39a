import json
import os
import numpy as np
import torch
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
LEVELS = 19


class ColumnData:
    """Atmospheric columns: temperature and humidity profiles -> physics tendencies and surface rain heat flux."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        p = np.linspace(0.05, 1.0, LEVELS)
        t_surf = rng.normal(290, 12, (n, 1))
        lapse = rng.normal(60, 8, (n, 1))
        temp = t_surf - lapse * (1 - p) ** 0.8 + rng.normal(0, 0.5, (n, LEVELS))
        rh = np.clip(rng.beta(3, 2, (n, 1)) + rng.normal(0, 0.05, (n, LEVELS)), 0.05, 1)
        q = rh * 3.8e-3 * np.exp(0.062 * (temp - 273)) * p
        inst = np.tanh((t_surf - 288) / 10 + 3 * (rh.mean(1, keepdims=True) - 0.55))
        bell = np.exp(-((p - 0.5 - 0.15 * inst) / 0.2) ** 2)
        self.dq1 = 6e-5 * inst * bell + 2e-6 * rng.normal(size=(n, LEVELS))            # K / s
        self.dq2 = -2e-8 * inst * bell * q / 5e-3 + 5e-10 * rng.normal(size=(n, LEVELS))   # kg / kg / s
        self.rain = 240 * np.log1p(np.exp(2 * inst)) + 5 * rng.normal(size=(n, 1))     # W / m2
        self.temp, self.q = temp, q

    def __len__(self):
        return len(self.temp)


class StandardScaler(nn.Module):
    def __init__(self, x):
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(x.mean(0), dtype=torch.float32))
        self.register_buffer("std", torch.as_tensor(x.std(0), dtype=torch.float32))

    def forward(self, x):
        return (x - self.mean) / self.std

    def inverse(self, z):
        return z * self.std + self.mean


class Identity(nn.Module):
    def forward(self, x):
        return x

    inverse = forward


class Emulator(nn.Module):
    def __init__(self, width=96, depth=3):
        super().__init__()
        layers, d = [], 2 * LEVELS
        for _ in range(depth):
            layers += [nn.Linear(d, width), nn.SiLU()]
            d = width
        self.trunk = nn.Sequential(*layers)
        self.heads = nn.ModuleDict({"dq1": nn.Linear(width, LEVELS), "dq2": nn.Linear(width, LEVELS), "rain": nn.Linear(width, 1)})

    def forward(self, x):
        h = self.trunk(x)
        return {k: head(h) for k, head in self.heads.items()}


def pack(data):
    x = np.concatenate([data.temp, data.q], 1)
    y = {"dq1": data.dq1, "dq2": data.dq2, "rain": data.rain}
    return torch.tensor(x, dtype=torch.float32), {k: torch.tensor(v, dtype=torch.float32) for k, v in y.items()}


def r2(pred, true):
    ss = ((true - true.mean(0)) ** 2).sum().double()
    return float(1 - ((pred - true) ** 2).sum().double() / ss)


train, test = ColumnData(4000, SEED), ColumnData(800, SEED + 1000)
xtr, ytr = pack(train)
xte, yte = pack(test)
x_scaler = StandardScaler(xtr.numpy())
if VARIANT == "fixed":
    y_scaler = {k: StandardScaler(v.double().numpy()) for k, v in ytr.items()}
else:
    y_scaler = {k: Identity() for k in ytr}

net = Emulator()
if COMPILE:
    net = torch.compile(net, backend=COMPILE)
opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=390)
mse = nn.MSELoss()
gen = torch.Generator().manual_seed(SEED)
history = []
for epoch in range(6):
    order = torch.randperm(len(xtr), generator=gen)
    for idx in order.split(62):
        out = net(x_scaler(xtr[idx]))
        parts = {k: mse(out[k], y_scaler[k](ytr[k][idx])) for k in out}
        loss = sum(parts.values())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        history.append(loss.item())
    print(f"epoch {epoch}: loss {np.mean(history[-60:]):.5g}  " + "  ".join(f"{k} {v.item():.3g}" for k, v in parts.items()))

net.eval()
with torch.no_grad():
    out = net(x_scaler(xte))
    scores = {k: r2(y_scaler[k].inverse(out[k]), yte[k]) for k in out}
print("test R2:", {k: round(v, 3) for k, v in scores.items()})
worst = min(scores.values())
print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])), "metric_name": "worst_output_r2",
                  "metric": worst if np.isfinite(worst) else None, "ok": bool(worst > 0.7)}))
