# Loan default scorecard: categorical embeddings + binned/scaled numerics, two-tower MLP
import json
import os

import numpy as np
import torch
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, roc_auc_score
from sklearn.preprocessing import QuantileTransformer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
np.random.seed(seed)
torch.manual_seed(seed)


def applications(n, rng):
    income = rng.lognormal(10.4, 0.5, n)
    amount = rng.lognormal(9.2, 0.6, n)
    term = rng.choice([12, 24, 36, 60], n, p=[0.2, 0.3, 0.3, 0.2])
    util = rng.beta(2, 4, n)
    delinq = rng.poisson(0.35, n)
    age = rng.integers(21, 75, n).astype(float)
    months_job = rng.exponential(50, n)
    inquiries = rng.poisson(1.2, n)
    purpose = rng.integers(0, 8, n)
    housing = rng.integers(0, 4, n)
    region = rng.integers(0, 20, n)
    burden = amount / term / (income / 12)
    purpose_eff = np.array([-0.5, -0.2, 0.0, 0.1, 0.3, 0.5, 0.9, -0.7])[purpose]
    house_eff = np.array([-0.4, 0.0, 0.3, 0.6])[housing]
    z = (1.4 * np.log(burden / 0.15) + 3.2 * (util - 0.33) + 1.1 * np.minimum(delinq, 4)
         + 0.35 * inquiries - 0.012 * np.minimum(months_job, 120) + purpose_eff + house_eff
         + 0.9 * ((age < 28) & (util > 0.4)))
    p = 1 / (1 + np.exp(-(1.15 * z - 5.1)))
    default = (rng.random(n) < p).astype(np.float32)
    num = np.stack([income, amount, term, util, delinq, age, months_job, inquiries], 1)
    cat = np.stack([purpose, housing, region], 1)
    return num, cat, default


class CategoryTower(nn.Module):
    def __init__(self, cards, dim=4):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(c, dim) for c in cards])
        self.out_features = dim * len(cards)

    def forward(self, c):
        return torch.cat([t(c[:, i]) for i, t in enumerate(self.tables)], dim=1)


class ScoreNet(nn.Module):
    def __init__(self, n_num, cards):
        super().__init__()
        self.cats = CategoryTower(cards)
        self.nums = nn.Sequential(nn.Linear(n_num, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.trunk = nn.Sequential(nn.Linear(32 + self.cats.out_features, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def forward(self, x, c):
        return self.trunk(torch.cat([self.nums(x), self.cats(c)], 1)).squeeze(1)


class EMA:
    """running average of the printed training loss"""
    def __init__(self, beta=0.95):
        self.beta, self.v, self.n = beta, 0.0, 0

    def add(self, x):
        self.n += 1
        self.v = self.beta * self.v + (1 - self.beta) * x
        return self.v / (1 - self.beta ** self.n)


rng = np.random.default_rng(100 + seed)
num, cat, y = applications(16000, rng)
cut = 11000
qt = QuantileTransformer(n_quantiles=200, output_distribution="normal", random_state=0).fit(num[:cut])
X = torch.tensor(np.clip(qt.transform(num), -3, 3), dtype=torch.float32)
C = torch.tensor(cat)
Y = torch.tensor(y)
print(f"train rows {cut}, default rate {y[:cut].mean():.4f}")

train_set = TensorDataset(X[:cut], C[:cut], Y[:cut])
if variant == "fixed":
    row_w = torch.where(Y[:cut] > 0.5, 1.0 / Y[:cut].mean(), 1.0 / (1 - Y[:cut].mean()))
    loader = DataLoader(train_set, batch_size=256, drop_last=True, sampler=WeightedRandomSampler(row_w, cut))
else:
    loader = DataLoader(train_set, batch_size=256, drop_last=True, shuffle=True)

net = ScoreNet(X.shape[1], (8, 4, 20))
model = torch.compile(net, backend=backend) if backend else net
criterion = nn.BCEWithLogitsLoss()
optim = torch.optim.Adam(net.parameters(), lr=2e-3, weight_decay=1e-5)
sched = torch.optim.lr_scheduler.StepLR(optim, step_size=3, gamma=0.5)


def report():
    model.eval()
    with torch.no_grad():
        s = torch.sigmoid(model(X[cut:], C[cut:])).numpy()
    model.train()
    truth = y[cut:].astype(int)
    pred = (s > 0.5).astype(int)
    tn, fp, fn, tp = confusion_matrix(truth, pred, labels=[0, 1]).ravel()
    return dict(acc=(tp + tn) / len(truth), recall=tp / max(tp + fn, 1), bal=balanced_accuracy_score(truth, pred),
                auc=roc_auc_score(truth, s))


loss_first, smooth = None, EMA()
for epoch in range(7):
    for xb, cb, yb in loader:
        optim.zero_grad()
        loss = criterion(model(xb, cb), yb)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optim.step()
        if loss_first is None:
            loss_first = loss.item()
        shown = smooth.add(loss.item())
    sched.step()
    r = report()
    print(f"[{epoch}] loss {shown:.4f} acc {r['acc']:.3f} default-recall {r['recall']:.3f} auc {r['auc']:.3f}")

r = report()
print(json.dumps({"loss_first": loss_first, "loss_last": shown, "metric_name": "balanced_accuracy", "metric": float(r["bal"]),
                  "ok": bool(r["bal"] > 0.72 and r["recall"] > 0.6)}))
