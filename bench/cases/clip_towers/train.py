"""Contrastive image/caption towers with one optimizer per tower."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)

VOCAB = 40


class Captioned(Dataset):
    """Feature vectors with captions of attribute words and filler."""

    def __init__(self, n, seed, basis_seed=5):
        b = np.random.default_rng(basis_seed)
        g = np.random.default_rng(seed)
        basis = b.normal(size=(24, 64)) / 2
        self.rows = []
        for _ in range(n):
            attrs = g.choice(24, 4, replace=False)
            img = basis[attrs].sum(0) + 0.25 * g.normal(size=64)
            words = np.concatenate([1 + attrs, 25 + g.integers(0, VOCAB - 25, g.integers(1, 5))])
            g.shuffle(words)
            self.rows.append((torch.tensor(img, dtype=torch.float32), torch.tensor(words)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    img, cap = zip(*rows)
    return torch.stack(img), pad_sequence(cap, batch_first=True)


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, dim))

    def forward(self, x):
        return self.net(x)


class TextTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 48, padding_idx=0)
        self.net = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, dim))

    def forward(self, tok):
        mask = (tok > 0).unsqueeze(-1).float()
        return self.net((self.emb(tok) * mask).sum(1) / mask.sum(1).sqrt())


class EveryTrainer:
    def __init__(self, image, text, clip_grad_norm=1.0, lr_image=0.1, lr_text=0.1, temperature=0.1):
        self.image, self.text = image, text
        self.clip_grad_norm = clip_grad_norm
        self.temperature = temperature
        sgd = lambda m, lr: torch.optim.SGD(m.parameters(), lr=lr, momentum=0.9, nesterov=True)
        self.optimizers = [sgd(image, lr_image), sgd(text, lr_text)]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 15, growth_interval=100)
        self.steps = 0

    def loss(self, img, cap):
        with torch.autocast("cpu", dtype=torch.float16):
            a, b = self.image(img), self.text(cap)
        a, b = F.normalize(a.float(), dim=-1), F.normalize(b.float(), dim=-1)
        logits = a @ b.T / self.temperature
        target = torch.arange(len(logits))
        return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target))

    def step(self, img, cap):
        loss = self.loss(img, cap)
        self.scaler.scale(loss).backward()
        self._optimizer_step()
        self.steps += 1
        return loss.item()

    def _optimizer_step(self):
        for opt in self.optimizers:
            if VARIANT == "fixed":
                self.scaler.unscale_(opt)
            for group in opt.param_groups:
                nn.utils.clip_grad_norm_(group["params"], self.clip_grad_norm)
            self.scaler.step(opt)
        self.scaler.update()
        for opt in self.optimizers:
            opt.zero_grad(set_to_none=True)


@torch.no_grad()
def recall_at_1(image, text, data):
    img, cap = collate([data[i] for i in range(len(data))])
    sim = F.normalize(image(img), dim=-1) @ F.normalize(text(cap), dim=-1).T
    return (sim.argmax(1) == torch.arange(len(img))).float().mean().item()


train, test = Captioned(2560, SEED + 1), Captioned(200, SEED + 2)
loader = DataLoader(train, batch_size=64, shuffle=True, drop_last=True, collate_fn=collate)
image, text = ImageTower(32), TextTower(32)
img_fn, txt_fn = (torch.compile(m, backend=BACKEND) if BACKEND else m for m in (image, text))
trainer = EveryTrainer(img_fn, txt_fn)
log = []
for epoch in range(12):
    for img, cap in loader:
        log.append(trainer.step(img, cap))
    if epoch % 2 == 1:
        print(f"epoch {epoch + 1:2d} steps {trainer.steps} loss {np.mean(log[-40:]):.4f} "
              f"scale {trainer.scaler.get_scale():.0f} R@1 {recall_at_1(image, text, test):.3f}")

r1 = recall_at_1(image, text, test)
fin = lambda v: round(float(v), 5) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(log[0]), "loss_last": fin(np.mean(log[-40:])), "metric_name": "recall_at_1",
                  "metric": fin(r1), "ok": r1 > 0.6}))
