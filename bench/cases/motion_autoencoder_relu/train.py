import os, json
import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
JOINTS, FRAMES = 12, 48


def clips(n, seed):
    """Walking-like motion: every joint angle is a gait harmonic with clip-wise tempo, stride and lean."""
    r = np.random.default_rng(seed)
    body = np.random.default_rng(99)
    amp, lag, rest = body.uniform(0.3, 1.2, JOINTS), body.uniform(0, 6.28, JOINTS), body.normal(0, 1.5, JOINTS)
    t = np.arange(FRAMES)
    tempo, stride, lean, off = r.uniform(0.2, 0.4, n), r.uniform(0.5, 1.5, n), r.normal(0, 0.6, n), r.uniform(0, 6.28, n)
    ph = (tempo[:, None] * t + off[:, None])[:, None, :] + lag[None, :, None]
    x = rest[None, :, None] + stride[:, None, None] * amp[None, :, None] * (np.sin(ph) + 0.3 * np.sin(2 * ph))
    x[:, :4] += lean[:, None, None]
    return x + 0.03 * r.normal(size=x.shape)


class TemporalBlock(nn.Module):
    def __init__(self, cin, cout, up=False, stride=1):
        super().__init__()
        self.up = nn.Upsample(scale_factor=2) if up else nn.Identity()
        self.conv = nn.Conv1d(cin, cout, 7, stride=stride, padding=3)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.conv(self.up(x)))


class MotionAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(TemporalBlock(JOINTS, 48, stride=2), TemporalBlock(48, 32, stride=2))
        self.decoder = nn.Sequential(TemporalBlock(32, 48, up=True), TemporalBlock(48, JOINTS, up=True))
        if VARIANT == "fixed":
            self.decoder[1].act = nn.Identity()

    def forward(self, x):
        return self.decoder(self.encoder(x))


raw, raw_t = clips(900, SEED + 1), clips(150, SEED + 2)
mu, sd = raw.mean((0, 2), keepdims=True), raw.std((0, 2), keepdims=True)
train = torch.tensor((raw - mu) / sd, dtype=torch.float32)
test = torch.tensor((raw_t - mu) / sd, dtype=torch.float32)

ae = MotionAE()
model = torch.compile(ae, backend=BACKEND) if BACKEND else ae
opt = torch.optim.Adam(ae.parameters(), lr=2e-3)
losses = []
for it in range(250):
    batch = train[torch.randint(0, len(train), (32,))]
    noisy = batch + 0.1 * torch.randn_like(batch)
    loss = (model(noisy) - batch).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if it % 50 == 0:
        print("iteration", it, "reconstruction", round(losses[-1], 4))

with torch.no_grad():
    err = (ae(test) - test).pow(2).mean().item()
print("test reconstruction error", err)
print(json.dumps({"loss_first": losses[0], "loss_last": losses[-1], "metric_name": "test_mse", "metric": err, "ok": err < 0.15}))
