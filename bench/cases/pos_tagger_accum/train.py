"""Sequence tagger on a synthetic grammar. Sentences go through in micro-batches and the optimizer
steps once per effective batch."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")

cfg = dict(vocab=60, tags=6, length=12, n_train=1024, n_val=256,
           micro_batch=8, accumulate=8, lr=0.3, momentum=0.9, updates=120)


def make_corpus(n, rng):
    """The tag of a word depends on its own class and the class of the previous word."""
    words = rng.randint(0, cfg["vocab"], (n, cfg["length"]))
    cls = words % 4
    prev = np.concatenate([np.zeros((n, 1), int), cls[:, :-1]], 1)
    tags = (cls + 2 * (prev // 2) + (prev % 2) * (cls > 1)) % cfg["tags"]
    return TensorDataset(torch.from_numpy(words), torch.from_numpy(tags))


class Tagger(nn.Module):
    def __init__(self, dim=32, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(cfg["vocab"], dim)
        self.conv = nn.Conv1d(dim, hidden, 3, padding=1)
        self.hidden = nn.Linear(hidden, hidden)
        self.classify = nn.Linear(hidden, cfg["tags"])

    def forward(self, w):
        h = torch.relu(self.conv(self.embed(w).transpose(1, 2))).transpose(1, 2)
        return self.classify(torch.relu(self.hidden(h)))


def forever(loader):
    while True:
        yield from loader


def tag_accuracy(model, data):
    w, t = data.tensors
    with torch.no_grad():
        return (model(w).argmax(-1) == t).float().mean().item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = np.random.RandomState(SEED)
    train, val = make_corpus(cfg["n_train"], rng), make_corpus(cfg["n_val"], rng)
    batches = forever(DataLoader(train, batch_size=cfg["micro_batch"], shuffle=True, drop_last=True))

    model = Tagger()
    if BACKEND:
        model = torch.compile(model, backend=BACKEND)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg["lr"], momentum=cfg["momentum"])

    curve = []
    for update in range(cfg["updates"]):
        optimizer.zero_grad()
        running = 0.0
        for _ in range(cfg["accumulate"]):
            words, tags = next(batches)
            loss = criterion(model(words).flatten(0, 1), tags.flatten())
            running += loss.item() / cfg["accumulate"]
            if VARIANT == "fixed":
                loss = loss / cfg["accumulate"]
            loss.backward()
        optimizer.step()
        curve.append(running)
        if update % 15 == 0:
            print(f"[{update:4d}/{cfg['updates']}] loss {running:.4f}  val acc {tag_accuracy(model, val):.3f}")

    score = tag_accuracy(model, val)
    num = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": num(curve[0]), "loss_last": num(np.mean(curve[-5:])),
                      "metric_name": "val_tag_accuracy", "metric": num(score), "ok": score > 0.9}))
