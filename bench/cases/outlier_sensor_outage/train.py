"""Online training of a district-heating demand model: one pass over the meter archive in time order."""
import json
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)
torch.set_num_threads(1)

LOOKBACK, BATCH, STEPS = 24, 32, 320


def archive(n):
    """Hourly outdoor temperature, wind and the heat meter reading (MW)."""
    t = np.arange(n)
    temp = 6 + 9 * np.sin(2 * np.pi * t / 2400) + 4 * np.sin(2 * np.pi * t / 24)
    temp = temp + np.convolve(rng.standard_normal(n), np.ones(12) / 4, mode="same")
    wind = np.abs(np.convolve(rng.standard_normal(n), np.ones(8) / 2.5, mode="same")) * 3
    feel = np.convolve(temp - 0.6 * wind, np.exp(-np.arange(12) / 4) / 4.3, mode="full")[:n]
    heat = np.clip(18 - feel, 0, None) * 1.1 + 3 * (np.cos(2 * np.pi * (t % 24 - 7) / 24) > 0.6) + 0.4 * rng.standard_normal(n)
    meter = heat.copy()
    k = int(n * 0.3) + rng.integers(0, 200)
    meter[k:k + 3] = 65535.0            # value the concentrator writes while it restarts
    return temp, wind, heat, meter


class HeatStream:
    def __init__(self, temp, wind, meter, lo, hi, screen):
        hod = np.arange(len(temp)) % 24
        self.feats = np.stack([(temp - 6) / 8, wind / 4, np.sin(2 * np.pi * hod / 24), np.cos(2 * np.pi * hod / 24)], 1)
        ends = np.arange(max(lo, LOOKBACK), hi)
        if screen:
            ends = ends[(meter[ends] >= 0) & (meter[ends] < 500)]
        self.ends, self.meter = ends, meter
        ref = np.median(meter[:500]); iqr = np.subtract(*np.percentile(meter[:500], [75, 25]))
        self.loc, self.scale = ref, iqr / 1.35

    def __len__(self):
        return len(self.ends)

    def take(self, rows):
        e = self.ends[rows]
        x = np.stack([self.feats[i - LOOKBACK + 1:i + 1] for i in e])
        y = (self.meter[e] - self.loc) / self.scale
        return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


class DemandNet(nn.Module):
    def __init__(self, n_in=4, hid=32):
        super().__init__()
        self.rnn = nn.GRU(n_in, hid, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hid, hid), nn.Tanh(), nn.Linear(hid, 1))

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.head(out[:, -1]).squeeze(-1)


N = BATCH * STEPS + LOOKBACK + 1200
temp, wind, heat, meter = archive(N)
split = BATCH * STEPS + LOOKBACK
stream = HeatStream(temp, wind, meter, 0, split, screen=(VARIANT == "fixed"))

net = DemandNet()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
mse = nn.MSELoss()

hist = []
n_steps = len(stream) // BATCH
for step in range(n_steps):
    x, y = stream.take(np.arange(step * BATCH, (step + 1) * BATCH))
    # mix with a few random earlier hours so that the seasons are not forgotten
    if step > 4:
        xr, yr = stream.take(rng.integers(0, step * BATCH, BATCH))
        x, y = torch.cat([x, xr]), torch.cat([y, yr])
    loss = mse(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    hist.append(loss.item())
    if step % 20 == 0:
        print(f"hour {step * BATCH:6d} loss {np.mean(hist[-20:]):.4g}")

test = HeatStream(temp, wind, heat, split, N, screen=False)
test.loc, test.scale = stream.loc, stream.scale
with torch.no_grad():
    x, y = test.take(np.arange(len(test)))
    err = (model(x) - y) * stream.scale
    truth = y * stream.scale
r2 = 1 - (err.pow(2).mean() / truth.var()).item()
print(f"test MAE {err.abs().mean():.2f} MW, R2 {r2:.3f}")
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-20:])), "metric_name": "test_r2",
                  "metric": r2, "ok": bool(r2 > 0.8)}))
