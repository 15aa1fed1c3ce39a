import json
import os
import numpy as np
import torch
import torch.nn as nn
from sklearn.metrics import accuracy_score, recall_score

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)


def make_table(n, seed, rare=0.06):
    g = np.random.default_rng(seed)
    y = (g.random(n) < rare).astype(np.int64)
    x = g.normal(0, 1, (n, 10))
    regime = (x[:, 9] > 0)
    x[y == 1, 0] += 1.1
    x[(y == 1) & regime, 1] += 1.1
    x[(y == 1) & ~regime, 2] -= 1.1
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class Expert(nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.lin = nn.Linear(d, k)

    def forward(self, x):
        return torch.log_softmax(self.lin(x), -1)


class HierarchicalMixture(nn.Module):
    """Two-level soft routing over linear experts, returns log-probabilities."""

    def __init__(self, d, k, branches=2, leaves=2):
        super().__init__()
        self.top_gate = nn.Linear(d, branches)
        self.sub_gates = nn.ModuleList([nn.Linear(d, leaves) for _ in range(branches)])
        self.experts = nn.ModuleList([nn.ModuleList([Expert(d, k) for _ in range(leaves)]) for _ in range(branches)])

    def forward(self, x):
        top = torch.log_softmax(self.top_gate(x), -1)
        terms = []
        for b, (gate, leaves) in enumerate(zip(self.sub_gates, self.experts)):
            sub = torch.log_softmax(gate(x), -1)
            for l, expert in enumerate(leaves):
                terms.append((top[:, b] + sub[:, l]).unsqueeze(1) + expert(x))
        return torch.logsumexp(torch.stack(terms), 0)


class MixtureClassifier:
    def __init__(self, class_weight=None, epochs=10, lr=0.02, batch_size=64):
        self.class_weight, self.epochs, self.lr, self.bs = class_weight, epochs, lr, batch_size
        self.history_ = []

    def fit(self, x, y):
        k = int(y.max()) + 1
        weight = torch.ones(len(y))
        if self.class_weight == "balanced":
            freq = torch.bincount(y, minlength=k).float()
            weight = (len(y) / (k * freq))[y]
            weight = weight / weight.mean()
        self.net_ = HierarchicalMixture(x.shape[1], k)
        self.model_ = torch.compile(self.net_, backend=COMPILE) if COMPILE else self.net_
        opt = torch.optim.Adam(self.model_.parameters(), lr=self.lr, weight_decay=1e-3)
        for ep in range(self.epochs):
            for idx in torch.randperm(len(y)).split(self.bs):
                logp = self.model_(x[idx])
                nll = -logp.gather(1, y[idx, None]).squeeze(1)
                loss = (weight[idx] * nll).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                self.history_.append(loss.item())
            print(f"epoch {ep:2d} loss {np.mean(self.history_[-30:]):.4f} train accuracy {accuracy_score(y, self.predict(x)):.3f}")
        return self

    @torch.no_grad()
    def predict(self, x):
        return self.net_(x).argmax(1).numpy()


xtr, ytr = make_table(2000, SEED)
xte, yte = make_table(3000, SEED + 10)
clf = MixtureClassifier(class_weight="balanced" if VARIANT == "fixed" else None).fit(xtr, ytr)
pred = clf.predict(xte)
rec = recall_score(yte, pred, average=None, zero_division=0)
print("accuracy", round(accuracy_score(yte, pred), 3), "recall per class", rec.round(3))
h = clf.history_
score = float(rec.mean())
print(json.dumps({"loss_first": h[0], "loss_last": float(np.mean(h[-20:])), "metric_name": "balanced_accuracy", "metric": score, "ok": score > 0.68}))
