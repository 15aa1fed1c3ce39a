import json, math, os, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
FIXED = VARIANT == "fixed"
torch.set_num_threads(1)
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)


def build(net):
    return torch.compile(net, backend=COMPILE) if COMPILE else net


def report(losses, name, value, ok):
    num = lambda v: round(float(v), 5) if math.isfinite(v) else None
    print(json.dumps({"loss_first": num(losses[0]), "loss_last": num(float(np.mean(losses[-10:]))),
                      "metric_name": name, "metric": num(value), "ok": bool(ok)}))

from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self):
        d = load_digits()
        self.img = (d.images * 15.9).astype(np.uint8)
        self.lab = d.target

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        im = self.img[i] / 255 if FIXED else self.img[i] // 255
        return torch.tensor(im, dtype=torch.float32).unsqueeze(0), int(self.lab[i])


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 8, 3, padding=1)
        self.c2 = nn.Conv2d(8, 16, 3, padding=1)
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.out(x.flatten(1))


net = CNN(); model = build(net)
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
hist = []
for ep in range(5):
    good = seen = 0
    for im, lab in DataLoader(Digits(), 32, shuffle=True):
        out = model(im)
        loss = F.cross_entropy(out, lab)
        opt.zero_grad(); loss.backward(); opt.step()
        good += (out.argmax(1) == lab).sum().item(); seen += len(lab)
        hist.append(loss.item())
    print(ep, good / seen)
report(hist, "train_accuracy", good / seen, good / seen > 0.85)
