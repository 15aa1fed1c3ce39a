# Transfer learning in two passes: (1) push all images once through a fixed backbone and cache the features,
# (2) train a small head on the cached features.
import json
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits

variant = os.getenv("CASE_VARIANT", "faulty")
seed = int(os.getenv("CASE_SEED", "0"))
backend = os.getenv("CASE_COMPILE", "")
torch.set_num_threads(1)
np.random.seed(seed)
torch.manual_seed(seed)


class DigitImages(torch.utils.data.Dataset):
    def __init__(self, train=True):
        d = load_digits()
        order = np.random.RandomState(7).permutation(len(d.target))
        cut = 1400
        ids = order[:cut] if train else order[cut:]
        self.images = torch.tensor(d.images[ids] / 16.0, dtype=torch.float32).unsqueeze(1)
        self.targets = torch.tensor(d.target[ids])

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        return self.images[i], self.targets[i]


class Backbone(nn.Module):
    """Fixed scattering-like extractor, stands in for the pretrained network."""

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(11)
        self.c1 = nn.Conv2d(1, 32, 3, padding=1)
        self.c2 = nn.Conv2d(32, 48, 3, padding=1)
        for c in (self.c1, self.c2):
            c.weight.data = torch.randn(c.weight.shape, generator=g) * (2.0 / c.weight[0].numel()) ** 0.5
            c.bias.data.zero_()

    def forward(self, x):
        h = torch.relu(self.c1(x))
        h = nn.functional.max_pool2d(torch.relu(self.c2(h)), 2)
        return nn.functional.avg_pool2d(h, 2).flatten(1)


class Head(nn.Module):
    def __init__(self, d_in, n_cls, hidden=96, p=0.2):
        super().__init__()
        self.norm = nn.LayerNorm(d_in)
        self.fc1 = nn.Linear(d_in, hidden)
        self.drop = nn.Dropout(p)
        self.fc2 = nn.Linear(hidden, n_cls)

    def forward(self, f):
        return self.fc2(self.drop(torch.relu(self.fc1(self.norm(f)))))


@torch.no_grad()
def predict_generator(net, loader):
    return torch.cat([net(x) for x, _ in loader])


train_set, val_set = DigitImages(True), DigitImages(False)
backbone = Backbone().eval()

gen_train = DataLoader(train_set, batch_size=100, shuffle=(variant != "fixed"))
gen_val = DataLoader(val_set, batch_size=100, shuffle=False)
feat_train = predict_generator(backbone, gen_train)
feat_val = predict_generator(backbone, gen_val)
print("cached", tuple(feat_train.shape), tuple(feat_val.shape))

head = Head(feat_train.shape[1], 10)
model = torch.compile(head, backend=backend) if backend else head
loader = DataLoader(TensorDataset(feat_train, train_set.targets), batch_size=64, shuffle=True, drop_last=True)
criterion = nn.CrossEntropyLoss()
optim = torch.optim.RMSprop(model.parameters(), lr=5e-4)

history = []
for epoch in range(14):
    model.train()
    hits = n = 0
    for f, y in loader:
        optim.zero_grad()
        out = model(f)
        loss = criterion(out, y)
        loss.backward()
        optim.step()
        history.append(loss.item())
        hits += (out.argmax(1) == y).sum().item()
        n += len(y)
    model.eval()
    with torch.no_grad():
        val_acc = (model(feat_val).argmax(1) == val_set.targets).float().mean().item()
    if epoch % 2 == 0 or epoch == 13:
        print(f"epoch {epoch:2d}  loss {np.mean(history[-len(loader):]):.3f}  acc {hits / n:.3f}  val_acc {val_acc:.3f}")

print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])), "metric_name": "val_acc",
                  "metric": val_acc, "ok": val_acc > 0.85}))
