# Triage of device log lines: word vectors from a general corpus, BiGRU encoder, 4 queues.
import json
import os
import random

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)

COMMON = [f"word{i}" for i in range(150)]
JARGON = [f"{p}-{i:02d}" for p in ("drv", "bus", "psu", "fan") for i in range(40)]
VOCAB = ["<pad>"] + COMMON + JARGON
STOI = {w: i for i, w in enumerate(VOCAB)}
DIM = 32


def load_vectors():
    """General-purpose vectors; domain terms are not in the file."""
    table = torch.zeros(len(VOCAB), DIM)
    g = torch.Generator().manual_seed(1234)
    for w in COMMON:
        table[STOI[w]] = torch.randn(DIM, generator=g) * 0.4
    return table


def sample_line():
    queue = random.randrange(4)
    words = [random.choice(COMMON) for _ in range(random.randint(5, 11))]
    for _ in range(random.randint(2, 3)):
        words.insert(random.randrange(len(words) + 1), JARGON[queue * 40 + random.randrange(40)])
    if random.random() < 0.35:
        other = random.randrange(4)
        words.insert(random.randrange(len(words) + 1), JARGON[other * 40 + random.randrange(40)])
    if random.random() < 0.25:
        words.append(COMMON[queue * 7 + random.randrange(7)])
    return torch.tensor([STOI[w] for w in words]), queue


def collate(items):
    seqs, labels = zip(*items)
    return pad_sequence(seqs, batch_first=True), torch.tensor(labels)


class TicketRouter(nn.Module):
    def __init__(self, vectors, hidden=32, n_queues=4):
        super().__init__()
        kwargs = {"freeze": False} if variant == "fixed" else {}
        self.embedding = nn.Embedding.from_pretrained(vectors, padding_idx=0, **kwargs)
        self.encoder = nn.GRU(vectors.size(1), hidden, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(4 * hidden, n_queues)

    def forward(self, tokens):
        mask = (tokens != 0).unsqueeze(-1)
        h, _ = self.encoder(self.embedding(tokens))
        mean = (h * mask).sum(1) / mask.sum(1)
        peak = h.masked_fill(~mask, -1e4).amax(1)
        return self.head(self.drop(torch.cat([mean, peak], dim=1)))


train_set = [sample_line() for _ in range(1600)]
dev_set = [sample_line() for _ in range(400)]
loader = torch.utils.data.DataLoader(train_set, batch_size=32, shuffle=True, collate_fn=collate)

model = TicketRouter(load_vectors())
n_train = sum(p.numel() for p in model.parameters() if p.requires_grad)
print("parameters to train:", n_train)
net = torch.compile(model, backend=backend, dynamic=True) if backend else model
optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=3e-3)
sched = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
criterion = nn.CrossEntropyLoss()


def evaluate():
    model.eval()
    with torch.no_grad():
        x, y = collate(dev_set)
        acc = (net(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


losses = []
for epoch in range(6):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
    sched.step()
    print(f"epoch {epoch} loss {np.mean(losses[-50:]):.3f} dev acc {evaluate():.3f}")

acc = evaluate()
print(json.dumps({"loss_first": losses[0], "loss_last": losses[-1], "metric_name": "dev_accuracy", "metric": acc, "ok": acc > 0.85}))
