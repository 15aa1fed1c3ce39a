"""Phone recogniser: synthetic filter-bank frames, convolution + bidirectional GRU, CTC."""
import json
import math
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    n_phones: int = 8
    n_mels: int = 20
    hidden: int = 48
    batch: int = 24
    epochs: int = 8
    lr: float = 3e-3 if os.environ.get("CASE_VARIANT", "faulty") == "fixed" else 2e-6
    anneal: float = 1.05
    max_norm: float = 400.0
    seed: int = int(os.environ.get("CASE_SEED", "0"))


class Utterances(Dataset):
    def __init__(self, n, cfg, templates, rng):
        self.items = []
        for _ in range(n):
            length = int(rng.integers(3, 7))
            phones = rng.integers(0, cfg.n_phones, length)
            frames = []
            for p in phones:
                dur = int(rng.integers(4, 8))
                env = np.hanning(dur + 2)[1:-1, None] * 0.6 + 0.5
                frames.append(env * templates[p][None])
                frames.append(np.zeros((int(rng.integers(1, 3)), cfg.n_mels)))
            mel = np.concatenate(frames)
            mel = mel + rng.normal(0, 0.35, mel.shape)
            self.items.append((torch.tensor(mel, dtype=torch.float32), torch.tensor(phones + 1)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    mels, labels = zip(*batch)
    n_frames = torch.tensor([len(m) for m in mels])
    n_labels = torch.tensor([len(t) for t in labels])
    return nn.utils.rnn.pad_sequence(mels, batch_first=True), torch.cat(labels), n_frames, n_labels


class PhoneNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.front = nn.Conv1d(cfg.n_mels, cfg.hidden, 5, padding=2)
        self.rnn = nn.GRU(cfg.hidden, cfg.hidden, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * cfg.hidden)
        self.proj = nn.Linear(2 * cfg.hidden, cfg.n_phones + 1)

    def forward(self, mel):
        h = torch.relu(self.front(mel.transpose(1, 2))).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.proj(self.norm(h)).log_softmax(-1)


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


@torch.no_grad()
def phone_error_rate(model, loader):
    model.eval()
    wrong = total = 0
    for mel, labels, n_frames, n_labels in loader:
        best = model(mel).argmax(-1)
        for seq, t, ref in zip(best, n_frames, labels.split(n_labels.tolist())):
            hyp = [k for k in torch.unique_consecutive(seq[:t]).tolist() if k != 0]
            wrong += edit_distance(hyp, ref.tolist())
            total += len(ref)
    return wrong / total


def main():
    cfg = Config()
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    templates = rng.normal(0, 1, (cfg.n_phones, cfg.n_mels))
    train = DataLoader(Utterances(600, cfg, templates, rng), cfg.batch, shuffle=True, collate_fn=collate)
    dev = DataLoader(Utterances(120, cfg, templates, rng), 60, collate_fn=collate)
    net = PhoneNet(cfg)
    backend = os.environ.get("CASE_COMPILE", "")
    model = torch.compile(net, backend=backend) if backend else net
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=cfg.lr, weight_decay=1e-5)
    losses = []
    for epoch in range(cfg.epochs):
        model.train()
        for mel, labels, n_frames, n_labels in train:
            log_probs = model(mel).transpose(0, 1)
            loss = criterion(log_probs, labels, n_frames, n_labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), cfg.max_norm)
            optimizer.step()
            losses.append(loss.item())
        for g in optimizer.param_groups:
            g["lr"] /= cfg.anneal
        print(f"Epoch: [{epoch + 1}] loss {np.mean(losses[-len(train):]):.4f} dev PER {100 * phone_error_rate(model, dev):.2f}")
    per = phone_error_rate(model, dev)
    r = lambda v: round(float(v), 5) if math.isfinite(v) else None
    print(json.dumps({"loss_first": r(losses[0]), "loss_last": r(np.mean(losses[-10:])),
                      "metric_name": "phone_error_rate", "metric": r(per), "ok": bool(per < 0.25)}))


if __name__ == "__main__":
    main()
