import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

config = {"input_dim": 24, "width": 64, "n_hidden": 16, "output_dim": 6, "lr": 0.02, "batch_size": 64, "steps": 300}


def simulate(n):
    """Readings of 24 sensors driven by a few hidden states, and six properties of the states to recover."""
    z = rng.normal(size=(n, 5))
    mix = np.random.default_rng(7).normal(size=(5, 24))
    x = z @ mix / math.sqrt(5) + 0.1 * rng.normal(size=(n, 24))
    t = np.stack([z[:, 0], z[:, 1] + 0.5 * z[:, 2], np.abs(z[:, 3]), np.tanh(2 * z[:, 4]),
                  np.maximum(z[:, 0], z[:, 4]), z[:, 2] - z[:, 1]], axis=1)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(t, dtype=torch.float32)


class Block(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.linear = nn.Linear(d_in, d_out)
        self.norm = nn.LayerNorm(d_out) if VARIANT == "fixed" else nn.Identity()
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.norm(self.linear(x)))


class Regressor(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        dims = [cfg["input_dim"]] + [cfg["width"]] * cfg["n_hidden"]
        self.stack = nn.Sequential(*[Block(a, b) for a, b in zip(dims[:-1], dims[1:])])
        self.out = nn.Linear(dims[-1], cfg["output_dim"])

    def forward(self, x):
        return self.out(self.stack(x))


x_train, t_train = simulate(4096)
x_val, t_val = simulate(1024)
mu, sd = x_train.mean(0), x_train.std(0)
tm, ts = t_train.mean(0), t_train.std(0)
x_train, x_val = (x_train - mu) / sd, (x_val - mu) / sd
t_train, t_val = (t_train - tm) / ts, (t_val - tm) / ts
loader = DataLoader(TensorDataset(x_train, t_train), batch_size=config["batch_size"], shuffle=True, drop_last=True)

net = Regressor(config)
if BACKEND:
    net = torch.compile(net, backend=BACKEND)
mse = nn.MSELoss()
sgd = torch.optim.SGD(net.parameters(), lr=config["lr"], momentum=0.9)

log, step = [], 0
while step < config["steps"]:
    for xb, tb in loader:
        loss = mse(net(xb), tb)
        sgd.zero_grad(set_to_none=True)
        loss.backward()
        sgd.step()
        log.append(loss.item())
        step += 1
        if step % 50 == 0:
            with torch.no_grad():
                print(f"[{step:03d}] train mse {np.mean(log[-50:]):.4f}  val mse {mse(net(x_val), t_val).item():.4f}")
        if step >= config["steps"]:
            break

with torch.no_grad():
    residual = ((net(x_val) - t_val) ** 2).mean().item()
r2 = 1 - residual / t_val.var().item()
print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-20:])), "metric_name": "val_r2", "metric": r2,
                  "ok": r2 > 0.5}))
