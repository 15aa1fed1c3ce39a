"""Sound event tagger on decibel mel patches (CNN with an input batch norm over the mel axis)."""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", 0))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
COMPILE = os.environ.get("CASE_COMPILE", "")

torch.set_num_threads(1)
torch.manual_seed(SEED)
rng = np.random.RandomState(SEED)

N_MELS, FRAMES, TAGS = 32, 32, 6


def synth_clip(kind):
    """power mel patch (mel x time) of one event in coloured noise"""
    tt = np.arange(FRAMES)
    mm = np.arange(N_MELS)[:, None]
    noise = rng.exponential(1.0, (N_MELS, FRAMES)) * 10 ** (-6.0 - 0.06 * mm)
    c = rng.uniform(8, 24)
    if kind == 0:      # steady tone
        track = np.full(FRAMES, c)
    elif kind == 1:    # rising chirp
        track = c - 6 + 12 * tt / FRAMES
    elif kind == 2:    # falling chirp
        track = c + 6 - 12 * tt / FRAMES
    elif kind == 3:    # siren
        track = c + 4 * np.sin(2 * np.pi * tt / 14 + rng.uniform(0, 6))
    else:
        track = None
    if track is not None:
        ev = np.exp(-0.5 * ((mm - track) / 0.9) ** 2)
    elif kind == 4:    # claps
        env = np.zeros(FRAMES)
        env[rng.choice(FRAMES, 4, replace=False)] = 1
        ev = np.repeat(env[None], N_MELS, 0) * rng.uniform(0.5, 1, (N_MELS, 1))
    else:              # band noise
        ev = (abs(mm - c) < 4) * rng.exponential(0.5, (N_MELS, FRAMES))
    return noise + ev * 10 ** rng.uniform(-6.6, -5.2)


def make_set(n):
    y = rng.randint(0, TAGS, n)
    power = np.stack([synth_clip(k) for k in y])
    db = 10 * np.log10(np.maximum(power, 1e-10))
    return torch.tensor(db, dtype=torch.float32), torch.tensor(y)


class ConvBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        for conv in (self.conv1, self.conv2):
            nn.init.xavier_uniform_(conv.weight)

    def forward(self, x):
        x = F.relu_(self.bn1(self.conv1(x)))
        x = F.relu_(self.bn2(self.conv2(x)))
        return F.avg_pool2d(x, 2)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn0 = nn.BatchNorm2d(N_MELS)
        self.blocks = nn.Sequential(ConvBlock(1, 8), ConvBlock(8, 16), ConvBlock(16, 32))
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(32, TAGS)

    def forward(self, mel_db):
        x = self.bn0(mel_db.unsqueeze(-1)).transpose(1, 3).transpose(2, 3)
        x = self.blocks(x)
        x = x.mean(3).amax(2)
        return self.fc(self.drop(x))


class Trainer:
    def __init__(self, model, train, val, bs=32, lr=2e-3):
        self.model, self.train_set, self.val_set, self.bs = model, train, val, bs
        self.opt = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
        self.log = []
        self.sched = None

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        x, y = self.val_set
        logits = torch.cat([self.model(xb) for xb in x.split(100)])
        return F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()

    def augment(self, x):
        f0 = torch.randint(0, N_MELS - 3, (len(x), 1))
        mels = torch.arange(N_MELS)[None]
        mask = (mels >= f0) & (mels < f0 + 3)
        x = torch.where(mask[:, :, None], x.mean((1, 2), keepdim=True), x)
        return torch.roll(x, int(torch.randint(-4, 5, (1,))), 2)

    def fit(self, epochs):
        vl, va = self.validate()
        print("sanity check: val loss %.3f acc %.3f" % (vl, va))
        x, y = self.train_set
        steps = epochs * -(-len(x) // self.bs)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, max_lr=4e-3, total_steps=steps)
        for ep in range(1, epochs + 1):
            if VARIANT == "fixed":
                self.model.train()
            for idx in torch.randperm(len(x)).split(self.bs):
                loss = F.cross_entropy(self.model(self.augment(x[idx])), y[idx], label_smoothing=0.05)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.sched.step()
                self.log.append(loss.item())
            vl, va = self.validate()
            print("epoch %d train %.3f val loss %.3f acc %.3f" % (ep, np.mean(self.log[-20:]), vl, va))
        return va


model = Tagger()
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
trainer = Trainer(model, make_set(720), make_set(300))
acc = trainer.fit(7)
print(json.dumps({"loss_first": trainer.log[0], "loss_last": float(np.mean(trainer.log[-20:])),
                  "metric_name": "val_accuracy", "metric": acc, "ok": bool(acc > 0.85)}))
