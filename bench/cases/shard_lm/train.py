"""Fine-tune a tiny gated-convolution language model on instruction data kept in several shard files."""
import json
import math
import os
import random
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

SKILLS = ["reverse", "rotate", "copy", "increment", "mirror7"]
DIGITS = 10
BOS, SEP, PAD = DIGITS, DIGITS + 1, DIGITS + 2
TAG0 = DIGITS + 3
VOCAB = TAG0 + len(SKILLS)
N = 4
SEQ = 1 + 1 + N + 1 + N


def answer(skill, xs):
    return {"reverse": xs[::-1], "rotate": xs[1:] + xs[:1], "copy": xs, "increment": [(v + 3) % DIGITS for v in xs],
            "mirror7": [(7 * v) % DIGITS for v in xs[::-1]]}[skill]


def conversation(k):
    xs = [random.randrange(DIGITS) for _ in range(N)]
    return [BOS, TAG0 + k] + xs + [SEP] + answer(SKILLS[k], xs)


def write_shards(folder, per_skill):
    for k, name in enumerate(SKILLS):
        rows = [conversation(k) for _ in range(per_skill)]
        (folder / f"sft_{k:02d}_{name}.jsonl").write_text("\n".join(json.dumps({"ids": r}) for r in rows))


class SFTDataset(Dataset):
    def __init__(self, folder):
        self.samples = [json.loads(line)["ids"] for f in sorted(folder.glob("*.jsonl")) for line in f.read_text().splitlines()]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        ids = torch.tensor(self.samples[index])
        mask = torch.zeros(SEQ - 1)
        mask[-N:] = 1
        return ids[:-1], ids[1:], mask


class GatedBlock(nn.Module):
    def __init__(self, dim, kernel):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.conv = nn.Conv1d(dim, 2 * dim, kernel)
        self.proj = nn.Linear(dim, dim)
        self.kernel = kernel

    def forward(self, x):
        h = F.pad(self.norm(x).transpose(1, 2), (self.kernel - 1, 0))
        return x + self.proj(F.glu(self.conv(h), dim=1).transpose(1, 2))


class GatedConvLM(nn.Module):
    def __init__(self, dim=64, layers=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(SEQ, dim))
        self.layers = nn.ModuleList([GatedBlock(dim, 8) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, ids):
        h = self.tok_embeddings(ids) + self.pos[:ids.size(1)]
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


def get_lr(step, total, lr):
    return lr / 10 + 0.5 * lr * (1 + math.cos(math.pi * step / total))


def train_epoch(epoch, model, loader, optimizer, total, log, ctx=nullcontext()):
    for step, (X, Y, loss_mask) in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(epoch * len(loader) + step, total, 4e-3)
        with ctx:
            res = F.cross_entropy(model(X).transpose(1, 2), Y, reduction="none")
            loss = (res * loss_mask).sum() / loss_mask.sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        log.append(loss.item())
        if step % 50 == 0:
            print(f"Epoch:[{epoch + 1}]({step}/{len(loader)}) loss:{loss.item():.3f} lr:{optimizer.param_groups[0]['lr']:.6f}")


with TemporaryDirectory() as tmp:
    write_shards(Path(tmp), 1920)
    train_ds = SFTDataset(Path(tmp))
random.seed(SEED + 1)
held_out = [(k, conversation(k)) for k in range(len(SKILLS)) for _ in range(100)]

loader_kw = dict(batch_size=64, drop_last=True, num_workers=0)
if VARIANT == "fixed":
    loader_kw.update(shuffle=True)
train_loader = DataLoader(train_ds, **loader_kw)
EPOCHS = 3
lm = GatedConvLM()
model = torch.compile(lm, backend=BACKEND) if BACKEND else lm
optimizer = torch.optim.AdamW(lm.parameters(), lr=4e-3, weight_decay=0.01)
log = []
for epoch in range(EPOCHS):
    train_epoch(epoch, model, train_loader, optimizer, EPOCHS * len(train_loader), log)

lm.eval()
ids = torch.tensor([c for _, c in held_out])
skill = np.array([k for k, _ in held_out])
with torch.no_grad():
    hit = (model(ids[:, :-1])[:, -N:].argmax(-1) == ids[:, -N:]).float().mean(1).numpy()
per = {s: round(float(hit[skill == k].mean()), 3) for k, s in enumerate(SKILLS)}
print("token accuracy", per)
acc = float(hit.mean())
print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-20:])), "metric_name": "held_out_token_accuracy",
                  "metric": acc, "ok": acc > 0.85}))
