"""Byte-level language model with causal convolutions, trained on standard-library source text."""
import argparse
import inspect
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def corpus():
    import heapq, bisect, textwrap, shlex, queue, sched
    text = "\n".join(inspect.getsource(m) for m in (heapq, bisect, textwrap, shlex, queue, sched))
    chars = sorted({c for c in text if text.count(c) > 20})
    table = {c: i + 1 for i, c in enumerate(chars)}
    return torch.tensor([table.get(c, 0) for c in text]), len(chars) + 1


class CausalConv(nn.Conv1d):
    def forward(self, x):
        return super().forward(F.pad(x, (self.kernel_size[0] - 1, 0)))


class ConvLM(nn.Module):
    def __init__(self, vocab, width=64, depth=7, kernel=3):
        super().__init__()
        self.table = nn.Embedding(vocab, width)
        self.stack = nn.Sequential()
        for i in range(depth):
            self.stack.append(CausalConv(width, width, kernel))
            self.stack.append(nn.ReLU())
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        h = self.stack(self.table(ids).transpose(1, 2))
        return self.head(h.transpose(1, 2))


def init_weights(module, scheme):
    if isinstance(module, (nn.Conv1d, nn.Linear)):
        if scheme == "he":
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        else:
            nn.init.normal_(module.weight, 0.0, 0.01)
        nn.init.zeros_(module.bias)


def sample(data, batch, length, gen):
    start = torch.randint(0, len(data) - length - 1, (batch,), generator=gen)
    rows = start[:, None] + torch.arange(length + 1)[None]
    chunk = data[rows]
    return chunk[:, :-1], chunk[:, 1:]


def main(opt):
    torch.set_num_threads(1)
    torch.manual_seed(opt.seed)
    gen = torch.Generator().manual_seed(opt.seed)
    data, vocab = corpus()
    cut = int(0.9 * len(data))
    train, val = data[:cut], data[cut:]
    print(f"{len(train)} training symbols, vocabulary {vocab}")

    lm = ConvLM(vocab)
    lm.apply(lambda m: init_weights(m, opt.scheme))
    net = torch.compile(lm, backend=opt.backend) if opt.backend else lm
    sgd = torch.optim.SGD(lm.parameters(), lr=opt.lr, momentum=0.9, nesterov=True)
    curve = []
    for step in range(1, opt.steps + 1):
        x, y = sample(train, opt.batch, opt.length, gen)
        loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten())
        sgd.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
        sgd.step()
        curve.append(loss.item())
        if step % 75 == 0:
            print(f"step {step:4d}  nats/char {np.mean(curve[-75:]):.4f}")

    with torch.no_grad():
        x, y = sample(val, 64, opt.length, gen)
        held = F.cross_entropy(net(x).flatten(0, 1), y.flatten()).item()
    print(f"held-out nats/char {held:.4f}")
    fin = lambda v: round(v, 4) if math.isfinite(v) else None
    print(json.dumps({"loss_first": fin(curve[0]), "loss_last": fin(float(np.mean(curve[-30:]))), "metric_name": "heldout_nats_per_char",
                      "metric": fin(held), "ok": bool(held < 2.6)}))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=600)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=int(os.environ.get("CASE_SEED", "0")))
    p.add_argument("--backend", default=os.environ.get("CASE_COMPILE", ""))
    p.add_argument("--scheme", default="he" if os.environ.get("CASE_VARIANT", "faulty") == "fixed" else "normal")
    main(p.parse_args())
