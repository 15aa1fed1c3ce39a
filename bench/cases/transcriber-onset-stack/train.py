import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

PITCHES, BINS, FRAMES = 12, 48, 24

HPARAMS = dict(
    conv_channels=(8, 12),
    fc_size=96,
    combined_units=64,
    lr=5e-3,
    steps=180,
    batch=8,
)
if VARIANT == "fixed":
    HPARAMS.update(conv_drop=0.25, fc_drop=0.25, combined_drop=0.1)
else:
    HPARAMS.update(conv_drop=0.75, fc_drop=0.75, combined_drop=0.9)


def synth_clip(rng):
    """Small log-spectrogram of random notes with decaying harmonics, plus onset and frame rolls."""
    spec = np.zeros((FRAMES, BINS))
    onset, frame = np.zeros((FRAMES, PITCHES)), np.zeros((FRAMES, PITCHES))
    for _ in range(rng.integers(4, 9)):
        p, s, d = rng.integers(PITCHES), rng.integers(0, FRAMES - 4), rng.integers(4, 10)
        e = min(FRAMES, s + d)
        env = np.exp(-np.arange(e - s) / 5.0) * rng.uniform(0.7, 1.3)
        for h, gain in ((0, 1.0), (12, 0.7), (19, 0.5), (24, 0.35)):
            spec[s:e, p + h] += gain * env
        onset[s:s + 2, p] = 1
        frame[s:e, p] = 1
    return np.log1p(4 * spec + 0.25 * rng.random(spec.shape)), onset, frame


def make_clips(n, seed):
    rng = np.random.default_rng(seed)
    parts = zip(*[synth_clip(rng) for _ in range(n)])
    return [torch.tensor(np.stack(p), dtype=torch.float32) for p in parts]


class AcousticStack(nn.Module):
    def __init__(self, hp):
        super().__init__()
        a, b = hp["conv_channels"]
        self.conv1 = nn.Conv2d(1, a, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(a)
        self.conv2 = nn.Conv2d(a, b, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(b)
        self.pool = nn.MaxPool2d((1, 2))
        self.drop_conv = nn.Dropout(hp["conv_drop"])
        self.fc = nn.Linear(b * BINS // 2, hp["fc_size"])
        self.drop_fc = nn.Dropout(hp["fc_drop"])

    def forward(self, spec):
        h = spec.unsqueeze(1)
        h = F.relu(self.bn1(self.conv1(h)))
        h = self.drop_conv(h)
        h = self.pool(F.relu(self.bn2(self.conv2(h))))
        h = self.drop_conv(h)
        h = h.permute(0, 2, 1, 3).flatten(2)
        return self.drop_fc(F.relu(self.fc(h)))


class OnsetsFrames(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.onset_stack, self.frame_stack = AcousticStack(hp), AcousticStack(hp)
        self.onset_head = nn.Linear(hp["fc_size"], PITCHES)
        self.frame_proj = nn.Linear(hp["fc_size"], PITCHES)
        self.combined = nn.Conv1d(2 * PITCHES, hp["combined_units"], 7, padding=3)
        self.drop_combined = nn.Dropout(hp["combined_drop"])
        self.frame_head = nn.Linear(hp["combined_units"], PITCHES)

    def forward(self, spec):
        onset = self.onset_head(self.onset_stack(spec))
        act = self.frame_proj(self.frame_stack(spec))
        joint = torch.cat([onset.detach(), act], -1)
        h = F.relu(self.combined(joint.transpose(1, 2))).transpose(1, 2)
        return onset, self.frame_head(self.drop_combined(h))


def f1(logit, ref):
    hit = logit > 0
    tp = (hit & (ref > 0.5)).sum().item()
    return 2 * tp / max(1, hit.sum().item() + (ref > 0.5).sum().item())


spec, onset, frame = make_clips(300, SEED)
vspec, vonset, vframe = make_clips(40, SEED + 1000)
model = OnsetsFrames(HPARAMS)
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
optimizer = torch.optim.Adam(model.parameters(), lr=HPARAMS["lr"])
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 60, gamma=0.7)

losses = []
model.train()
for it in range(HPARAMS["steps"]):
    pick = torch.randint(0, len(spec), (HPARAMS["batch"],))
    on, fr = model(spec[pick])
    loss = F.binary_cross_entropy_with_logits(on, onset[pick]) + F.binary_cross_entropy_with_logits(fr, frame[pick])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 3.0)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
    if (it + 1) % 40 == 0:
        model.eval()
        with torch.no_grad():
            on, fr = model(vspec)
        scores = f1(on, vonset), f1(fr, vframe)
        model.train()
        print("it %d train loss %.4f  val onset F1 %.3f frame F1 %.3f" % (it + 1, np.mean(losses[-40:]), *scores))

print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-20:])), "metric_name": "onset_f1", "metric": scores[0], "ok": scores[0] > 0.75}))
