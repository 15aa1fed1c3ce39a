"""Fine-tune a small text encoder + classification head on an intent data set (utterances made of slot templates)."""
import argparse
import json
import math
import os
import random

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")

torch.set_num_threads(2)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

PAD, CLS, SEP = 0, 1, 2
VOCAB, MAXLEN, N_INTENTS = 160, 20, 8


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--learning_rate", type=float, default=3e-5 if VARIANT == "faulty" else 1e-3)
    p.add_argument("--warmup_proportion", type=float, default=0.1)
    p.add_argument("--weight_decay", type=float, default=0.01)
    p.add_argument("--num_train_epochs", type=int, default=6)
    p.add_argument("--train_batch_size", type=int, default=48)
    return p.parse_args([])


def make_utterances(n, rng):
    """Each intent owns a verb group and an object group; the rest of the utterance is filler."""
    ids = np.full((n, MAXLEN), PAD)
    y = rng.integers(0, N_INTENTS, n)
    for i in range(n):
        verb = 3 + (y[i] // 2) * 6 + rng.integers(0, 6)
        obj = 40 + (y[i] % 2) * 20 + rng.integers(0, 20)
        words = list(rng.integers(90, VOCAB, rng.integers(5, MAXLEN - 6)))
        words.insert(rng.integers(0, len(words) + 1), verb)
        words.insert(rng.integers(0, len(words) + 1), obj)
        seq = [CLS] + words + [SEP]
        ids[i, :len(seq)] = seq
    return torch.as_tensor(ids), torch.as_tensor(y)


class Embeddings(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.word = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.position = nn.Embedding(MAXLEN, dim)
        self.norm = nn.LayerNorm(dim)
        self.drop = nn.Dropout(0.1)

    def forward(self, ids):
        pos = torch.arange(ids.size(1), device=ids.device)
        return self.drop(self.norm(self.word(ids) + self.position(pos)))


class IntentModel(nn.Module):
    def __init__(self, dim=64, heads=4, layers=2):
        super().__init__()
        self.embeddings = Embeddings(dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pooler = nn.Linear(dim, dim)
        self.classifier = nn.Linear(dim, N_INTENTS)
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.05)

    def forward(self, ids):
        h = self.encoder(self.embeddings(ids), src_key_padding_mask=ids == PAD)
        return self.classifier(torch.tanh(self.pooler(h[:, 0])))


def linear_warmup(optimizer, warmup, total):
    def scale(step):
        if step < warmup:
            return (step + 1) / max(1, warmup)
        return max(0.0, (total - step) / max(1, total - warmup))
    return LambdaLR(optimizer, scale)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hit = sum((model(x).argmax(-1) == y).sum().item() for x, y in loader)
    model.train()
    return hit / len(loader.dataset)


def main():
    args = parse_args()
    rng = np.random.default_rng(SEED)
    train = DataLoader(TensorDataset(*make_utterances(1920, rng)), args.train_batch_size, shuffle=True)
    dev = DataLoader(TensorDataset(*make_utterances(600, rng)), 200)

    model = IntentModel()
    decay = [p for n, p in model.named_parameters() if "norm" not in n and not n.endswith("bias")]
    rest = [p for n, p in model.named_parameters() if "norm" in n or n.endswith("bias")]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": args.weight_decay},
                                   {"params": rest, "weight_decay": 0.0}], lr=args.learning_rate)
    total = len(train) * args.num_train_epochs
    scheduler = linear_warmup(optimizer, math.ceil(total * args.warmup_proportion), total)
    net = torch.compile(model, backend=COMPILE) if COMPILE else model

    losses = []
    for epoch in range(args.num_train_epochs):
        for ids, labels in train:
            loss = nn.functional.cross_entropy(net(ids), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}  train loss {np.mean(losses[-len(train):]):.4f}  dev acc {accuracy(model, dev):.3f}")

    acc = accuracy(model, dev)
    last = float(np.mean(losses[-10:]))
    print(json.dumps({"loss_first": losses[0], "loss_last": last if math.isfinite(last) else None,
                      "metric_name": "dev_accuracy", "metric": acc, "ok": acc > 0.9}))


if __name__ == "__main__":
    main()
