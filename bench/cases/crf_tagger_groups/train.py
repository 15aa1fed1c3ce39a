"""Span tagger for shop titles: pretrained-style context encoder, emission layer and a linear-chain CRF."""
import json
import math
import os
import random

import torch
import torch.nn as nn

variant, seed = os.environ.get("CASE_VARIANT", "faulty"), int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(seed)
torch.manual_seed(seed)

TAGS = ["O", "B-BRAND", "I-BRAND", "B-SIZE", "I-SIZE"]
VOCAB, T = 60, 14


def title():
    """ids 0-29 filler, 30-44 brand words, 45-59 size words; the first word of a run opens the span."""
    ids, tags = [], []
    while len(ids) < T:
        u = random.random()
        if u < 0.5:
            ids.append(random.randrange(30))
            tags.append(0)
        else:
            lo, b = (30, 1) if u < 0.75 else (45, 3)
            if tags and tags[-1] in (b, b + 1):
                ids.append(random.randrange(30))
                tags.append(0)
            for j in range(random.randint(1, 3)):
                ids.append(random.randrange(lo, lo + 15))
                tags.append(b if j == 0 else b + 1)
    return ids[:T], tags[:T]


class CRF(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.start = nn.Parameter(torch.randn(k) * 0.1)
        self.transitions = nn.Parameter(torch.randn(k, k) * 0.1)

    def forward(self, emissions, tags):
        gold = self.start[tags[:, 0]] + emissions.gather(2, tags[..., None]).squeeze(2).sum(1)
        gold = gold + self.transitions[tags[:, :-1], tags[:, 1:]].sum(1)
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.size(1)):
            alpha = torch.logsumexp(alpha[:, :, None] + self.transitions, dim=1) + emissions[:, t]
        return (torch.logsumexp(alpha, 1) - gold).mean()

    @torch.no_grad()
    def decode(self, emissions):
        score, back = self.start + emissions[:, 0], []
        for t in range(1, emissions.size(1)):
            score, arg = (score[:, :, None] + self.transitions).max(1)
            score = score + emissions[:, t]
            back.append(arg)
        path = [score.argmax(1)]
        for arg in reversed(back):
            path.append(arg.gather(1, path[-1][:, None]).squeeze(1))
        return torch.stack(path[::-1], 1)


class Tagger(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.encoder = nn.ModuleDict({"embed": nn.Embedding(VOCAB, 48), "rnn": nn.GRU(48, hidden, batch_first=True, bidirectional=True)})
        self.fc = nn.Linear(2 * hidden, len(TAGS))
        self.crf = CRF(len(TAGS))

    def emit(self, ids):
        h, _ = self.encoder["rnn"](self.encoder["embed"](ids))
        return self.fc(h)

    def forward(self, ids, tags):
        return self.crf(self.emit(ids), tags)


def configure(model, lr_encoder=2e-5, lr_head=1e-2):
    parameters = []
    params = {"lr": lr_encoder, "weight_decay": 1e-2, "params": []}
    for name, p in model.named_parameters():
        if name.startswith("encoder"):
            params["params"].append(p)
    parameters.append(params)

    params = {"lr": lr_head, "weight_decay": 1e-2, "params": []}
    for name, p in model.named_parameters():
        if name.startswith("crf") or name.startswith("fc"):
            params["params"].append(p)
    if variant == "fixed":
        parameters.append(params)
    return torch.optim.AdamW(parameters)


def f1(model, ids, tags):
    pred = model.crf.decode(model.emit(ids))
    tp = ((pred == tags) & (tags > 0)).sum().item()
    return 2 * tp / ((pred > 0).sum().item() + (tags > 0).sum().item())


def tensors(n):
    pairs = [title() for _ in range(n)]
    return torch.tensor([p[0] for p in pairs]), torch.tensor([p[1] for p in pairs])


train, dev = tensors(1200), tensors(300)
model = Tagger()
forward = torch.compile(model, backend=backend) if backend else model
optimizer = configure(model)
steps, warm = 180, 15
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / warm, (steps - s) / (steps - warm)))

nll = []
for step in range(steps):
    pick = torch.randint(0, len(train[0]), (32,))
    loss = forward(train[0][pick], train[1][pick])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    scheduler.step()
    model.zero_grad()
    nll.append(loss.item())
    if (step + 1) % 30 == 0:
        with torch.no_grad():
            print(f"step {step + 1} nll {sum(nll[-30:]) / 30:.3f} dev f1 {f1(model, *dev):.3f}")

with torch.no_grad():
    score = f1(model, *dev)
ok = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": ok(nll[0]), "loss_last": ok(sum(nll[-20:]) / 20), "metric_name": "dev_token_f1", "metric": score, "ok": score > 0.8}))
