# Sequence autoencoder on windows of turbine telemetry (used later for novelty scores).
import json, os
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from sklearn.preprocessing import StandardScaler

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", 0))
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(seed)
rng = np.random.default_rng(seed)

CHANNELS = ["rotor_rpm", "oil_temp", "vib_x", "power_kw"]
WIN = 16


def simulate(n):
    t = np.arange(n)
    load = np.sin(2 * np.pi * t / 60 + rng.uniform(0, 6)) + 0.5 * np.sin(2 * np.pi * t / 23)
    rpm = 1500 + 120 * load + 8 * rng.standard_normal(n)
    temp = 70 + 6 * np.convolve(load, np.ones(12) / 12, mode="same") + 0.3 * rng.standard_normal(n)
    vib = 0.4 * np.sin(2 * np.pi * t / 9) * (1 + 0.3 * load) + 0.03 * rng.standard_normal(n)
    power = 900 + 310 * load + 60 * np.sin(2 * np.pi * t / 60) + 15 * rng.standard_normal(n)
    return np.stack([rpm, temp, vib, power], axis=1)


raw_train, raw_test = simulate(3000), simulate(700)
scaler = StandardScaler().fit(raw_train)


def windows(raw):
    z = scaler.transform(raw)
    return torch.tensor(np.stack([z[i:i + WIN] for i in range(0, len(z) - WIN, 2)]), dtype=torch.float32)


class SeqAutoencoder(nn.Module):
    def __init__(self, n_feat, hidden=32, code=16):
        super().__init__()
        self.encoder = nn.GRU(n_feat, hidden, batch_first=True)
        self.to_code = nn.Linear(hidden, code)
        self.from_code = nn.Linear(code, hidden)
        self.decoder = nn.GRU(code, hidden, batch_first=True)
        self.output = nn.Sequential(
            nn.Linear(hidden, 32), nn.ReLU(), nn.Linear(32, n_feat),
            nn.Identity() if variant == "fixed" else nn.Sigmoid(),
        )

    def forward(self, x):
        _, h = self.encoder(x)
        z = self.to_code(h[-1])
        h0 = torch.tanh(self.from_code(z)).unsqueeze(0)
        y, _ = self.decoder(z.unsqueeze(1).expand(-1, x.size(1), -1).contiguous(), h0)
        return self.output(y)


x_train, x_test = windows(raw_train), windows(raw_test)
loader = DataLoader(TensorDataset(x_train), batch_size=64, shuffle=True, drop_last=True)
net = SeqAutoencoder(len(CHANNELS))
if backend:
    net = torch.compile(net, backend=backend)
optim = torch.optim.Adam(net.parameters(), lr=6e-3)
mse = nn.MSELoss()

log = []
for epoch in range(9):
    net.train()
    for (xb,) in loader:
        optim.zero_grad()
        loss = mse(net(xb), xb)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optim.step()
        log.append(loss.item())
    if epoch % 3 == 2:
        print(f"epoch {epoch + 1:2d} reconstruction mse {np.mean(log[-23:]):.4f}")

net.eval()
with torch.no_grad():
    rec = net(x_test)
    ev = 1 - ((rec - x_test) ** 2).mean((0, 1)) / x_test.var((0, 1))
print({c: round(v, 3) for c, v in zip(CHANNELS, ev.tolist())})
print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-10:])),
                  "metric_name": "test_explained_variance", "metric": ev.mean().item(), "ok": ev.mean().item() > 0.6}))
