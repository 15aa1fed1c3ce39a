import argparse
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=240)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--check-every", type=int, default=40)
parser.add_argument("--blocks", type=int, default=7)
args = parser.parse_args([])

SIZE, COLORS = 12, 3
WORDS = {"what": 0, "is": 1, "the": 2, "shape": 3, "color": 4, "size": 5, "of": 6, "object": 7}
ANSWERS = ["square", "cross", "red", "green", "blue", "small", "large"]


def scene(rng):
    img = rng.normal(0, 0.15, (3, SIZE, SIZE)).astype(np.float32)
    shape, color, big = rng.integers(2), rng.integers(COLORS), rng.integers(2)
    s = 7 if big else 4
    r, c = rng.integers(0, SIZE - s + 1, 2)
    mask = np.zeros((s, s), dtype=np.float32)
    if shape == 0:
        mask[0], mask[-1], mask[:, 0], mask[:, -1] = 1, 1, 1, 1
    else:
        mask[s // 2], mask[:, s // 2] = 1, 1
    img[color, r:r + s, c:c + s] += mask
    return img, (shape, 2 + color, 5 + big)


def dataset(n, seed):
    rng = np.random.default_rng(seed)
    imgs, qs, ans = [], [], []
    for _ in range(n):
        img, facts = scene(rng)
        k = rng.integers(3)
        attr = ("shape", "color", "size")[k]
        imgs.append(img)
        qs.append([WORDS[w] for w in f"what is the {attr} of the object".split()])
        ans.append(facts[k])
    return torch.tensor(np.stack(imgs)), torch.tensor(qs), torch.tensor(ans)


class FiLMBlock(nn.Module):
    def __init__(self, ch, cond):
        super().__init__()
        self.conv = nn.Conv2d(ch, ch, 3, padding=1)
        self.bn = nn.BatchNorm2d(ch)
        self.film = nn.Linear(cond, 2 * ch)

    def forward(self, x, q):
        gamma, beta = self.film(q).unsqueeze(-1).unsqueeze(-1).chunk(2, 1)
        return F.relu((1 + gamma) * self.bn(self.conv(x)) + beta)


class VQANet(nn.Module):
    def __init__(self, ch=16, cond=24, blocks=7):
        super().__init__()
        self.words = nn.Embedding(len(WORDS), 12)
        self.encoder = nn.GRU(12, cond, batch_first=True)
        self.stem = nn.Sequential(nn.Conv2d(3, ch, 3, padding=1), nn.BatchNorm2d(ch), nn.ReLU())
        self.blocks = nn.ModuleList([FiLMBlock(ch, cond) for _ in range(blocks)])
        self.classifier = nn.Sequential(nn.Linear(ch, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, len(ANSWERS)))

    def forward(self, img, question):
        _, q = self.encoder(self.words(question))
        x = self.stem(img)
        for i, block in enumerate(self.blocks):
            x = block(x, q[-1])
            if i in (2, 4):
                x = F.max_pool2d(x, 2)
        return self.classifier(x.amax((2, 3)))


def set_mode(mode, *models):
    for m in models:
        m.train(mode == "train")


def check_accuracy(model, data):
    set_mode("eval", model)
    with torch.no_grad():
        pred = torch.cat([model(i, q).argmax(1) for i, q, _ in zip(*[d.split(100) for d in data])])
    acc = (pred == data[2]).float().mean().item()
    if VARIANT == "fixed":
        set_mode("train", model)
    return acc


train, val = dataset(2400, SEED), dataset(300, SEED + 321)
model = VQANet(blocks=args.blocks)
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
stats = {"loss": [], "val_acc": []}
set_mode("train", model)
for t in range(args.iterations):
    if t % args.check_every == 0:
        stats["val_acc"].append(check_accuracy(model, val))
        print("t = %d, loss = %s, val accuracy = %.3f" % (t, np.round(np.mean(stats["loss"][-20:]), 4) if t else "-", stats["val_acc"][-1]))
    idx = torch.randint(0, len(train[2]), (args.batch,))
    loss = F.cross_entropy(model(train[0][idx], train[1][idx]), train[2][idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stats["loss"].append(loss.item())

acc = check_accuracy(model, val)
print(json.dumps({"loss_first": stats["loss"][0], "loss_last": float(np.mean(stats["loss"][-20:])), "metric_name": "val_acc", "metric": acc, "ok": acc > 0.85}))
