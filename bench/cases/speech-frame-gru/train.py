"""Frame-level phone recogniser on synthetic filterbank features (GRU, framewise targets)."""
import json
import os
import time

import numpy as np
import torch
from torch import nn

CFG = dict(
    variant=os.environ.get("CASE_VARIANT", "faulty"),
    seed=int(os.environ.get("CASE_SEED", "0")),
    backend=os.environ.get("CASE_COMPILE", ""),
    n_phones=30, n_mels=20, frames=32, batch=24, steps=220, lr=6e-3,
)
CFG["n_hidden"] = 6 if CFG["variant"] == "faulty" else 64

torch.manual_seed(CFG["seed"])
torch.set_num_threads(1)


class PhoneCorpus:
    """Each phone has two sub-states with their own spectra; speakers tilt and shift the spectrum."""

    def __init__(self, cfg, seed):
        g = np.random.default_rng(seed)
        self.g, self.cfg = g, cfg
        self.spec = g.normal(0, 1, (cfg["n_phones"], 2, cfg["n_mels"])).astype(np.float32)

    def utterance(self):
        c, g = self.cfg, self.g
        feats, labels = [], []
        while len(labels) < c["frames"]:
            p, dur = g.integers(c["n_phones"]), g.integers(3, 8)
            w = np.linspace(0, 1, dur)[:, None]
            feats.append((1 - w) * self.spec[p, 0] + w * self.spec[p, 1])
            labels += [p] * dur
        x = np.concatenate(feats)[:c["frames"]]
        tilt = 0.3 * g.normal() * np.linspace(-1, 1, c["n_mels"])
        x = x + tilt + 0.5 * g.normal(size=x.shape)
        return x.astype(np.float32), np.array(labels[:c["frames"]])

    def sample(self, n):
        xs, ys = zip(*(self.utterance() for _ in range(n)))
        return torch.from_numpy(np.stack(xs)), torch.from_numpy(np.stack(ys))


class Acoustic(nn.Module):
    def __init__(self, n_in, n_hidden, n_out):
        super().__init__()
        self.norm = nn.LayerNorm(n_in)
        self.front = nn.Sequential(nn.Linear(n_in, n_hidden), nn.ReLU())
        self.rnn = nn.GRU(n_hidden, n_hidden, batch_first=True, bidirectional=True)
        self.out = nn.Sequential(nn.Linear(2 * n_hidden, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_out))

    def forward(self, x):
        h, _ = self.rnn(self.front(self.norm(x)))
        return self.out(h)


def frame_error(model, x, y):
    model.eval()
    with torch.no_grad():
        fer = (model(x).argmax(-1) != y).float().mean().item()
    model.train()
    return fer


def main(cfg):
    corpus = PhoneCorpus(cfg, cfg["seed"])
    train_x, train_y = corpus.sample(600)
    dev_x, dev_y = corpus.sample(120)
    model = Acoustic(cfg["n_mels"], cfg["n_hidden"], cfg["n_phones"])
    n_par = sum(p.numel() for p in model.parameters())
    print(f"{n_par} parameters, {train_y.numel()} training frames")
    net = torch.compile(model, backend=cfg["backend"]) if cfg["backend"] else model
    opt = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg["steps"])
    ce = nn.CrossEntropyLoss()
    trace, t0 = [], time.time()
    for step in range(cfg["steps"]):
        idx = torch.randint(0, len(train_x), (cfg["batch"],))
        logits = net(train_x[idx])
        loss = ce(logits.flatten(0, 1), train_y[idx].flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        sched.step()
        trace.append(loss.item())
        if (step + 1) % 55 == 0:
            print(f"[{time.time() - t0:5.1f}s] step {step + 1} loss {np.mean(trace[-30:]):.3f} "
                  f"train FER {frame_error(model, train_x[:120], train_y[:120]):.3f} "
                  f"dev FER {frame_error(model, dev_x, dev_y):.3f}")
    fer = frame_error(model, dev_x, dev_y)
    print(json.dumps({"loss_first": trace[0], "loss_last": float(np.mean(trace[-20:])),
                      "metric_name": "dev_frame_error", "metric": fer, "ok": fer < 0.15}))


main(CFG)
