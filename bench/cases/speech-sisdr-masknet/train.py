import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)

SR, T = 4000, 1600


def synth_voice(rng, n):
    """Voiced frames: f0 glide plus harmonics under a slow envelope."""
    t = np.arange(T) / SR
    out = np.zeros((n, T))
    for i in range(n):
        f0 = rng.uniform(90, 200) * (1 + 0.1 * np.sin(2 * np.pi * rng.uniform(1, 3) * t + rng.uniform(0, 6)))
        ph = 2 * np.pi * np.cumsum(f0) / SR
        env = 0.6 + 0.4 * np.sin(2 * np.pi * rng.uniform(2, 5) * t + rng.uniform(0, 6))
        for h in range(1, 5):
            out[i] += np.sin(h * ph + rng.uniform(0, 6)) / h
        out[i] *= env
    return out / out.std(axis=1, keepdims=True)


def synth_noise(rng, n):
    w = rng.normal(size=(n, T + 1))
    hp = w[:, 1:] - 0.6 * w[:, :-1]
    return hp / hp.std(axis=1, keepdims=True)


def make_batch(rng, n, snr_db=(-3, 3)):
    s, v = synth_voice(rng, n), synth_noise(rng, n)
    g = 10 ** (-rng.uniform(*snr_db, size=(n, 1)) / 20)
    mix = s + g * v
    return torch.tensor(mix, dtype=torch.float32), torch.tensor(s, dtype=torch.float32)


class DilatedBlock(nn.Module):
    def __init__(self, ch, dil):
        super().__init__()
        self.inp = nn.Conv1d(ch, ch, 1)
        self.norm = nn.GroupNorm(1, ch)
        self.dw = nn.Conv1d(ch, ch, 3, padding=dil, dilation=dil, groups=ch)
        self.out = nn.Conv1d(ch, ch, 1)
        self.act = nn.PReLU()

    def forward(self, x):
        return x + self.out(self.act(self.dw(self.norm(self.act(self.inp(x))))))


class MaskNet(nn.Module):
    def __init__(self, n_filt=48, win=32):
        super().__init__()
        self.analysis = nn.Conv1d(1, n_filt, win, stride=win // 2, bias=False)
        self.separator = nn.Sequential(nn.GroupNorm(1, n_filt), *[DilatedBlock(n_filt, 2 ** i) for i in range(4)])
        self.mask = nn.Conv1d(n_filt, n_filt, 1)
        self.synthesis = nn.ConvTranspose1d(n_filt, 1, win, stride=win // 2, bias=False)

    def forward(self, mix):
        e = F.relu(self.analysis(mix.unsqueeze(1)))
        m = torch.sigmoid(self.mask(self.separator(e)))
        return self.synthesis(e * m).squeeze(1)


def batch_SDR(estimate, origin, eps=1e-8):
    """Scale-invariant SDR per utterance, in dB."""
    estimate = estimate - estimate.mean(1, keepdim=True)
    origin = origin - origin.mean(1, keepdim=True)
    scale = (estimate * origin).sum(1, keepdim=True) / (origin.pow(2).sum(1, keepdim=True) + eps)
    target = scale * origin
    res = estimate - target
    return 10 * torch.log10((target.pow(2).sum(1) + eps) / (res.pow(2).sum(1) + eps))


def training_objective(est, clean):
    sdr = batch_SDR(est, clean).mean()
    if VARIANT == "fixed":
        return -sdr
    return sdr


def main():
    rng = np.random.default_rng(SEED)
    pool_mix, pool_clean = make_batch(rng, 400)
    val_mix, val_clean = make_batch(rng, 64)
    net = MaskNet()
    model = torch.compile(net, backend=COMPILE) if COMPILE else net
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    hist = []
    for step in range(240):
        idx = torch.randint(0, len(pool_mix), (12,))
        est = model(pool_mix[idx])
        loss = training_objective(est, pool_clean[idx])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        hist.append(loss.item())
        if step % 40 == 0:
            print(f"step {step:3d} | loss {loss.item():8.3f}")
    net.eval()
    with torch.no_grad():
        gain = (batch_SDR(net(val_mix), val_clean) - batch_SDR(val_mix, val_clean)).mean().item()
    print(f"validation SI-SDR improvement {gain:.2f} dB")
    print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-10:])),
                      "metric_name": "si_sdr_improvement_db", "metric": gain, "ok": gain > 3.0}))


main()
