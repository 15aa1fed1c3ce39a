"""CRNN recogniser for fixed-layout meter strips of handwritten digits, one label per digit window."""
import json
import math
import os
import random
import string

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

config = {
    "seed": int(os.environ.get("CASE_SEED", "0")),
    "variant": os.environ.get("CASE_VARIANT", "faulty"),
    "backend": os.environ.get("CASE_COMPILE", ""),
    "batch": 24,
    "lr": 0.2,
    "steps": 150,
    "digits": 6,
    "alphabet": string.digits,
}
torch.set_num_threads(1)
random.seed(config["seed"])
np.random.seed(config["seed"])
torch.manual_seed(config["seed"])


class Strips(Dataset):
    def __init__(self, n, images, labels):
        keep = labels < len(config["alphabet"])
        self.images, self.labels, self.n = images[keep], labels[keep], n

    def __len__(self):
        return self.n

    def __getitem__(self, _):
        pick = np.random.randint(0, len(self.images), config["digits"])
        strip = np.concatenate([self.images[i] for i in pick], 1)
        strip = strip + np.random.normal(0, 0.05, strip.shape)
        return torch.tensor(strip[None], dtype=torch.float32), torch.tensor(self.labels[pick])


class CRNN(nn.Module):
    def __init__(self, num_class, map_to_seq=32, hidden=48):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)),
                                 nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)))
        self.map_to_seq = nn.Linear(32 * 2, map_to_seq)
        self.rnn = nn.RNN(map_to_seq, hidden, num_layers=1, nonlinearity="relu", bidirectional=True)
        for name, p in self.rnn.named_parameters():
            if name.startswith("weight_hh"):
                nn.init.orthogonal_(p, gain=nn.init.calculate_gain("relu"))
            elif name.startswith("weight_ih"):
                nn.init.xavier_uniform_(p)
        self.dense = nn.Linear(2 * hidden, num_class)

    def forward(self, images):
        conv = self.cnn(images)
        b, c, h, w = conv.shape
        seq = self.map_to_seq(conv.reshape(b, c * h, w).permute(2, 0, 1))
        out, _ = self.rnn(seq)
        windows = F.adaptive_avg_pool1d(out.permute(1, 2, 0), config["digits"])
        return self.dense(windows.transpose(1, 2))


def train_batch(crnn, batch, optimizer, criterion):
    crnn.train()
    images, targets = batch
    logits = crnn(images)
    loss = criterion(logits.flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    if config["variant"] == "fixed":
        nn.utils.clip_grad_norm_(crnn.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def evaluate(crnn, loader):
    crnn.eval()
    good = total = 0
    with torch.no_grad():
        for images, targets in loader:
            good += (crnn(images).argmax(-1) == targets).sum().item()
            total += targets.numel()
    return good / total


def main():
    d = load_digits()
    images, labels = (d.images / 16.0), d.target
    train_loader = DataLoader(Strips(config["batch"] * config["steps"], images[:1300], labels[:1300]), batch_size=config["batch"])
    valid_loader = DataLoader(Strips(200, images[1300:], labels[1300:]), batch_size=50)
    crnn = CRNN(len(config["alphabet"]))
    model = torch.compile(crnn, backend=config["backend"]) if config["backend"] else crnn
    optimizer = torch.optim.SGD(crnn.parameters(), lr=config["lr"], momentum=0.9, nesterov=True)
    criterion = nn.CrossEntropyLoss()
    history = []
    for i, batch in enumerate(train_loader, 1):
        history.append(train_batch(model, batch, optimizer, criterion))
        if i % 15 == 0:
            print("train_batch_loss[", i, "]: ", history[-1])
    acc = evaluate(model, valid_loader)
    f = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(history[0]), "loss_last": f(np.mean(history[-20:])), "metric_name": "char_accuracy",
                      "metric": acc, "ok": acc > 0.7}))


if __name__ == "__main__":
    main()
