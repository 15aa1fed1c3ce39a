import os, json, math
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = int(os.environ.get("CASE_SEED", "0"))
VARIANT = os.environ.get("CASE_VARIANT", "faulty")
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED); np.random.seed(SEED)
torch.set_num_threads(1)

args = {"growth": 8, "blocks": (3, 3), "stem": 16, "keep_prob": 0.8, "lr": 0.05, "epochs": 6, "batch": 64}


def drop_layer(keep_prob):
    if VARIANT == "fixed":
        return nn.Dropout(1.0 - keep_prob)
    return nn.Dropout(keep_prob)


class DenseLayer(nn.Module):
    def __init__(self, cin, growth, keep_prob):
        super().__init__()
        self.norm = nn.BatchNorm2d(cin)
        self.conv = nn.Conv2d(cin, growth, 3, padding=1, bias=False)
        self.drop = drop_layer(keep_prob)

    def forward(self, x):
        return torch.cat([x, self.drop(self.conv(torch.relu(self.norm(x))))], 1)


class Transition(nn.Module):
    def __init__(self, cin, cout, keep_prob):
        super().__init__()
        self.norm = nn.BatchNorm2d(cin)
        self.conv = nn.Conv2d(cin, cout, 1, bias=False)
        self.drop = drop_layer(keep_prob)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x):
        return self.pool(self.drop(self.conv(torch.relu(self.norm(x)))))


class DenseNet(nn.Module):
    def __init__(self, growth, blocks, stem, keep_prob, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(1, stem, 3, padding=1, bias=False)
        stages, ch = [], stem
        for i, n in enumerate(blocks):
            for _ in range(n):
                stages.append(DenseLayer(ch, growth, keep_prob))
                ch += growth
            if i < len(blocks) - 1:
                stages.append(Transition(ch, ch // 2, keep_prob))
                ch //= 2
        self.stages = nn.Sequential(*stages)
        self.final_norm = nn.BatchNorm2d(ch)
        self.fc = nn.Linear(ch, classes)

    def forward(self, x):
        h = torch.relu(self.final_norm(self.stages(self.stem(x))))
        return self.fc(h.mean((2, 3)))


X, y = load_digits(return_X_y=True)
X = torch.tensor(X.reshape(-1, 1, 8, 8) / 8 - 1, dtype=torch.float32)
y = torch.tensor(y)
itr, ite = train_test_split(np.arange(len(y)), test_size=360, random_state=SEED, stratify=y)
loader = DataLoader(TensorDataset(X[itr], y[itr]), batch_size=args["batch"], shuffle=True, drop_last=True)

model = DenseNet(args["growth"], args["blocks"], args["stem"], args["keep_prob"])
net = torch.compile(model, backend=COMPILE) if COMPILE else model
opt = torch.optim.SGD(model.parameters(), lr=args["lr"], momentum=0.9, nesterov=True, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.MultiStepLR(opt, [4, 5], gamma=0.2)
loss_fn = nn.CrossEntropyLoss()


@torch.no_grad()
def accuracy(idx):
    model.eval()
    return (model(X[idx]).argmax(1) == y[idx]).float().mean().item()


hist = []
for ep in range(args["epochs"]):
    model.train()
    for xb, yb in loader:
        opt.zero_grad()
        loss = loss_fn(net(xb), yb)
        loss.backward()
        opt.step()
        hist.append(loss.item())
    sched.step()
    print(f"epoch {ep} train loss {np.mean(hist[-22:]):.3f} train acc {accuracy(itr):.3f} test acc {accuracy(ite):.3f}")

acc = accuracy(ite)
f = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": f(hist[0]), "loss_last": f(np.mean(hist[-22:])), "metric_name": "test_accuracy",
                  "metric": acc, "ok": bool(acc > 0.9)}))
