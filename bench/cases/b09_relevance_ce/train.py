"""Two-tower matching: does this passage answer this question? (bags of word ids)"""
import os, json, math
import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED + 50)
torch.set_num_threads(1)

VOCAB, TOPICS, QLEN, PLEN = 400, 12, 8, 20
topic_words = rng.dirichlet(np.full(VOCAB, 0.05), TOPICS)


def make_pairs(n):
    t = rng.integers(0, TOPICS, n)
    y = rng.integers(0, 2, n)
    other = (t + rng.integers(1, TOPICS, n)) % TOPICS
    tp = np.where(y == 1, t, other)
    q = np.stack([rng.choice(VOCAB, QLEN, p=topic_words[a]) for a in t])
    p = np.stack([rng.choice(VOCAB, PLEN, p=topic_words[a]) for a in tp])
    return torch.tensor(q), torch.tensor(p), torch.tensor(y)


class Tower(nn.Module):
    def __init__(self, emb, dim):
        super().__init__()
        self.emb = emb
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, ids):
        return self.mlp(self.emb(ids).mean(1))


class Matcher(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        shared = nn.Embedding(VOCAB, dim)
        self.q_tower, self.p_tower = Tower(shared, dim), Tower(shared, dim)
        self.scorer = nn.Sequential(nn.Linear(4 * dim, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def forward(self, q, p):
        a, b = self.q_tower(q), self.p_tower(p)
        return self.scorer(torch.cat([a, b, a * b, (a - b).abs()], -1))


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.fwd = torch.compile(model, backend=COMPILE) if COMPILE else model
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
        self.criterion = nn.BCEWithLogitsLoss() if VARIANT == "fixed" else nn.CrossEntropyLoss()
        self.losses = []

    def fit_epoch(self, data, bs):
        q, p, y = data
        self.model.train()
        for idx in torch.randperm(len(y)).split(bs):
            scores = self.fwd(q[idx], p[idx])
            loss = self.criterion(scores, y[idx].float().unsqueeze(1))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.losses.append(loss.item())

    @torch.no_grad()
    def evaluate(self, data):
        q, p, y = data
        self.model.eval()
        prob = torch.sigmoid(self.model(q, p)).squeeze(1)
        return ((prob > 0.5).long() == y).float().mean().item()


train, dev = make_pairs(3200), make_pairs(600)
trainer = Trainer(Matcher(), lr=2e-3)
for epoch in range(6):
    trainer.fit_epoch(train, 64)
    acc = trainer.evaluate(dev)
    print(f"epoch {epoch}: loss {np.mean(trainer.losses[-50:]):.4f}  dev acc {acc:.3f}")

fin = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(trainer.losses[0]), "loss_last": fin(np.mean(trainer.losses[-20:])),
                  "metric_name": "dev_accuracy", "metric": acc, "ok": bool(acc > 0.85)}))
