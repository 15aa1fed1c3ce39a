"""Small FastSpeech-like acoustic model: phonemes -> CBHG style encoder -> mel frames + log-duration."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CFG = dict(n_phone=40, n_speaker=6, dim=64, n_mel=20, n_highway=4, batch=32, steps=260, lr=2e-3, warmup=25)
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)
np.random.seed(SEED)


class Corpus:
    """Synthetic utterances; the spectrum of a phoneme depends on its neighbours and on the speaker."""

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        self.g = g
        self.formant = torch.randn(CFG["n_phone"], 8, generator=g)
        self.voice = torch.randn(CFG["n_speaker"], 8, generator=g)
        self.mix = torch.randn(3, 8, CFG["n_mel"], generator=g) / 8 ** 0.5

    def batch(self, n, length=18):
        ph = torch.randint(0, CFG["n_phone"], (n, length), generator=self.g)
        spk = torch.randint(0, CFG["n_speaker"], (n,), generator=self.g)
        f = self.formant[ph]
        left, right = torch.roll(f, 1, 1), torch.roll(f, -1, 1)
        left[:, 0], right[:, -1] = 0, 0
        v = self.voice[spk][:, None]
        mel = torch.tanh(f + 0.5 * left) @ self.mix[0] + (f * torch.sigmoid(2 * v)) @ self.mix[1] + torch.tanh(right * f) @ self.mix[2]
        logdur = 0.5 * torch.tanh(f[..., 0] + v[..., 1]) + 0.2 * left[..., 2]
        mel = mel + 0.05 * torch.randn(mel.shape, generator=self.g)
        return ph, spk, mel, logdur


class Highway(nn.Module):
    def __init__(self, dim, gate_bias):
        super().__init__()
        self.H = nn.Linear(dim, dim)
        self.T = nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.H.weight, gain=nn.init.calculate_gain("relu"))
        nn.init.zeros_(self.H.bias)
        nn.init.constant_(self.T.bias, gate_bias)

    def forward(self, x):
        t = torch.sigmoid(self.T(x))
        return t * F.relu(self.H(x)) + (1 - t) * x


class Encoder(nn.Module):
    def __init__(self, dim, n_highway):
        super().__init__()
        self.phone = nn.Embedding(CFG["n_phone"], dim)
        self.speaker = nn.Embedding(CFG["n_speaker"], dim)
        self.context = nn.Conv1d(dim, dim, 3, padding=1)
        gate_bias = -1.0 if VARIANT == "fixed" else -10.0
        self.highways = nn.ModuleList(Highway(dim, gate_bias) for _ in range(n_highway))

    def forward(self, ph, spk):
        x = self.phone(ph) + self.speaker(spk)[:, None]
        x = x + self.context(x.transpose(1, 2)).transpose(1, 2)
        for layer in self.highways:
            x = layer(x)
        return x


class AcousticModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder(CFG["dim"], CFG["n_highway"])
        self.mel_out = nn.Linear(CFG["dim"], CFG["n_mel"])
        self.dur_out = nn.Linear(CFG["dim"], 1)

    def forward(self, ph, spk):
        h = self.encoder(ph, spk)
        return self.mel_out(h), self.dur_out(h).squeeze(-1)


def criterion(out, mel, logdur):
    return F.mse_loss(out[0], mel) + F.l1_loss(out[0], mel) + 0.3 * F.mse_loss(out[1], logdur)


@torch.no_grad()
def unexplained(model, data):
    """share of the mel variance that is left unexplained on new utterances"""
    model.eval()
    ph, spk, mel, _ = data
    pred, _ = model(ph, spk)
    model.train()
    return (((pred - mel) ** 2).mean() / (mel - mel.mean((0, 1))).pow(2).mean()).item()


def run():
    corpus = Corpus(SEED + 31)
    held_out = corpus.batch(128)
    model = AcousticModel()
    if BACKEND:
        model = torch.compile(model, backend=BACKEND)
    opt = torch.optim.Adam(model.parameters(), lr=CFG["lr"], betas=(0.9, 0.98))
    lr = lambda s: min(1.0, (s + 1) / CFG["warmup"]) * (0.3 if s > 0.8 * CFG["steps"] else 1.0)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr)
    first, tail = None, []
    for step in range(CFG["steps"]):
        ph, spk, mel, logdur = corpus.batch(CFG["batch"])
        opt.zero_grad()
        loss = criterion(model(ph, spk), mel, logdur)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        first = loss.item() if first is None else first
        tail = (tail + [loss.item()])[-20:]
        if step % 40 == 0:
            print(f"step {step:4d} | loss {loss.item():.3f} | unexplained {unexplained(model, held_out):.3f}")
    metric = unexplained(model, held_out)
    print(json.dumps({"loss_first": first, "loss_last": sum(tail) / len(tail), "metric_name": "unexplained_mel_variance",
                      "metric": metric, "ok": bool(metric < 0.2)}))


run()
