"""Predict transcription-factor binding from DNA windows (several factors at once)."""
import json
import os
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)


class GenomicWindows(Dataset):
    BASES = np.eye(4, dtype=np.float32)

    def __init__(self, n, motifs, rng, length=80):
        self.seq = rng.integers(0, 4, (n, length))
        self.lab = (rng.random((n, len(motifs))) < 0.4).astype(np.float32)
        for i in range(n):
            for k in np.flatnonzero(self.lab[i]):
                m = motifs[k].copy()
                if rng.random() < 0.3:
                    m[rng.integers(0, len(m))] = rng.integers(0, 4)
                at = rng.integers(0, length - len(m))
                self.seq[i, at:at + len(m)] = m

    def __len__(self):
        return len(self.seq)

    def __getitem__(self, i):
        return self.BASES[self.seq[i]].T.copy(), self.lab[i]


class DeepSite(nn.Module):
    def __init__(self, targets):
        super().__init__()
        self.scan = nn.Sequential(nn.Conv1d(4, 32, 9, padding=4), nn.ReLU(), nn.MaxPool1d(4),
                                  nn.Conv1d(32, 48, 5, padding=2), nn.ReLU())
        self.predict = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, targets))

    def forward(self, x):
        return self.predict(self.scan(x - 0.25).amax(-1))


class TrainModel:
    def __init__(self, model, train_loader, valid_loader, lr, max_epochs, report_every=1):
        self.net = model
        self.model = torch.compile(model, backend=BACKEND) if BACKEND else model
        self.train_loader, self.valid_loader = train_loader, valid_loader
        self.criterion = nn.BCEWithLogitsLoss()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-6)
        self.scheduler = ReduceLROnPlateau(self.optimizer, "min" if VARIANT == "fixed" else "max", patience=1, factor=0.4)
        self.max_epochs, self.report_every = max_epochs, report_every
        self.losses = []

    def validate(self):
        self.model.eval()
        logits, labels = [], []
        with torch.no_grad():
            for x, y in self.valid_loader:
                logits.append(self.model(x))
                labels.append(y)
        logits, labels = torch.cat(logits), torch.cat(labels)
        return self.criterion(logits, labels).item(), average_auc(logits, labels)

    def train_and_validate(self):
        for epoch in range(self.max_epochs):
            self.model.train()
            for x, y in self.train_loader:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())
            valid_loss, auc = self.validate()
            self.scheduler.step(valid_loss)
            if epoch % self.report_every == 0:
                sys.stdout.write(f"epoch {epoch:2d} train {np.mean(self.losses[-40:]):.4f} valid {valid_loss:.4f} auroc {auc:.3f}\n")
        return auc


def average_auc(score, label):
    out = []
    for k in range(label.size(1)):
        pos, neg = score[label[:, k] == 1, k], score[label[:, k] == 0, k]
        out.append((pos[:, None] > neg[None]).float().mean().item())
    return float(np.mean(out))


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    motifs = [rng.integers(0, 4, 8) for _ in range(5)]
    train = DataLoader(GenomicWindows(1920, motifs, rng), batch_size=48, shuffle=True, drop_last=True)
    valid = DataLoader(GenomicWindows(400, motifs, rng), batch_size=100)
    t0 = time.time()
    trainer = TrainModel(DeepSite(5), train, valid, lr=0.14, max_epochs=22)
    auc = trainer.train_and_validate()
    print(f"done in {time.time() - t0:.1f} s")
    print(json.dumps({"loss_first": trainer.losses[0], "loss_last": float(np.mean(trainer.losses[-40:])),
                      "metric_name": "valid_auroc", "metric": auc, "ok": auc > 0.84}))


if __name__ == "__main__":
    main()
