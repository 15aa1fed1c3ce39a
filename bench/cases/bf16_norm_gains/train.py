"""Calibrate a frozen sensor model: only per-channel gains (starting at one) are learnt."""
import json
import os

import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
DTYPE = torch.float32 if VARIANT == "fixed" else torch.bfloat16


class Gain(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * self.weight


class SensorModel(nn.Module):
    def __init__(self, mix, read):
        super().__init__()
        self.register_buffer("mix", mix)
        self.register_buffer("read", read)
        self.input_gain = Gain(mix.shape[0])
        self.channel_gain = Gain(mix.shape[1])

    def forward(self, x):
        return self.channel_gain(torch.tanh(self.input_gain(x) @ self.mix)) @ self.read


mix = torch.randn(18, 50) / 18 ** 0.5
read = torch.randn(50, 4) / 50 ** 0.5
truth = SensorModel(mix, read)
with torch.no_grad():
    truth.input_gain.weight.uniform_(0.55, 1.45)
    truth.channel_gain.weight.uniform_(0.55, 1.45)
    x_all = torch.randn(4000, 18) * 1.3
    y_all = truth(x_all) + 0.01 * torch.randn(4000, 4)

model = SensorModel(mix, read).to(DTYPE)
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=1.5e-3)
losses = []
for it in range(520):
    b = torch.randint(0, 3500, (90,))
    loss = (net(x_all[b].to(DTYPE)).float() - y_all[b]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if it % 80 == 0:
        print(f"{it} {loss.item():.5f}")
with torch.no_grad():
    err = (net(x_all[3500:].to(DTYPE)).float() - y_all[3500:]).pow(2).mean().item() / y_all[3500:].var().item()
print(json.dumps({"loss_first": losses[0], "loss_last": sum(losses[-30:]) / 30, "metric_name": "relative_mse", "metric": err, "ok": err < 0.02}))
