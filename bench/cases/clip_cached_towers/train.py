"""Two-tower contrastive training on digit images and their token captions; image features come from a frozen encoder and are cached."""
import argparse
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

WORDS = 40


class CaptionedDigits(Dataset):
    """Each picture has a caption of six tokens: some name the digit, some the amount of ink in the four quadrants."""

    def __init__(self, images, labels, rng):
        self.images = torch.tensor(images / 16.0, dtype=torch.float32)
        quad = self.images.view(-1, 2, 4, 2, 4).mean((2, 4)).view(-1, 4)
        rank = quad.argsort(1)
        self.tokens = torch.stack([
            torch.as_tensor(labels), torch.as_tensor(labels), 10 + rank[:, 0], 14 + rank[:, 3],
            18 + (quad.sum(1) * 8).long().clamp(max=15), torch.tensor(rng.integers(34, WORDS, len(labels))),
        ], dim=1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return {"index": i, "pixels": self.images[i], "caption": self.tokens[i]}


class FrozenEncoder(nn.Module):
    def __init__(self, dim=192):
        super().__init__()
        self.conv = nn.Conv2d(1, 24, 3, padding=1)
        self.proj = nn.Linear(24 * 16, dim)
        for p in self.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def forward(self, pixels):
        h = F.max_pool2d(F.leaky_relu(self.conv(pixels.unsqueeze(1))), 2)
        return F.leaky_relu(self.proj(h.flatten(1)), 0.3) * 3


class TwoTower(nn.Module):
    def __init__(self, image_dim=192, width=64, out=32):
        super().__init__()
        self.image_norm = nn.LayerNorm(image_dim)
        self.image_head = nn.Sequential(nn.Linear(image_dim, width), nn.GELU(), nn.Linear(width, out))
        self.words = nn.EmbeddingBag(WORDS, width, mode="mean")
        self.text_head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, out))
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))

    def forward(self, feats, tokens):
        a = F.normalize(self.image_head(self.image_norm(feats)), dim=-1)
        b = F.normalize(self.text_head(self.words(tokens)), dim=-1)
        return self.log_scale.exp().clamp(max=50) * a @ b.t()


def clip_loss(logits):
    target = torch.arange(len(logits))
    return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default=os.environ.get("CASE_VARIANT", "faulty"))
    ap.add_argument("--seed", type=int, default=int(os.environ.get("CASE_SEED", "0")))
    ap.add_argument("--backend", default=os.environ.get("CASE_COMPILE", ""))
    ap.add_argument("--epochs", type=int, default=25)
    ap.add_argument("--batch", type=int, default=64)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    digits = load_digits()
    order = rng.permutation(len(digits.images))
    train_set = CaptionedDigits(digits.images[order[:1536]], digits.target[order[:1536]], rng)
    test_set = CaptionedDigits(digits.images[order[1536:]], digits.target[order[1536:]], rng)
    loader = DataLoader(train_set, batch_size=args.batch, shuffle=True, drop_last=True)

    encoder = FrozenEncoder().eval()
    cache, by_index = [], torch.zeros(len(train_set), 192)
    for batch in loader:
        feats = encoder(batch["pixels"])
        cache.append(feats)
        by_index[batch["index"]] = feats

    towers = TwoTower()
    model = torch.compile(towers, backend=args.backend) if args.backend else towers
    opt = torch.optim.AdamW(towers.parameters(), lr=2e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs * len(loader))
    log = []
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            feats = by_index[batch["index"]] if args.variant == "fixed" else cache[step]
            loss = clip_loss(model(feats, batch["caption"]))
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            log.append(loss.item())
        if epoch % 4 == 0:
            print(f"epoch {epoch}: contrastive loss {np.mean(log[-len(loader):]):.3f}  scale {towers.log_scale.exp().item():.2f}")

    towers.eval()
    with torch.no_grad():
        prompts = torch.stack([torch.full((6,), d) for d in range(10)])
        sims = towers(encoder(test_set.images), prompts)
        acc = (sims.argmax(1) == test_set.tokens[:, 0]).float().mean().item()
    print(f"zero-shot digit accuracy {acc:.3f}")
    print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-20:])), "metric_name": "zero_shot_accuracy",
                      "metric": acc, "ok": acc > 0.6}))


if __name__ == "__main__":
    main()
