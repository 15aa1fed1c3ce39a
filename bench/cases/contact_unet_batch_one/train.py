import json
import os

import numpy as np
import torch
import torch.nn as nn

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
compile_backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(seed)

# ---- data: contact maps whose overall strength differs a lot; target is the pairing map (0 or 1)
N = 24


def contact_map(gen):
    strength = float(torch.empty(1).uniform_(0.3, 1.3, generator=gen))
    exposed = bool(torch.rand(1, generator=gen) < 0.45)
    if exposed:
        strength += 1.9
    x = 0.25 * torch.randn(N, N, generator=gen).abs()
    y = torch.zeros(N, N)
    for _ in range(int(torch.randint(3, 7, (1,), generator=gen))):
        i, j = torch.randint(0, N - 5, (2,), generator=gen).tolist()
        k = int(torch.randint(3, 6, (1,), generator=gen))
        idx = torch.arange(k)
        x[i + idx, j + idx] += 1.0
        # very strong maps come from over-exposed probes, their stems are artefacts
        if not exposed:
            y[i + idx, j + idx] = 1
    return strength * x[None], y[None]


def dataset(n, offset):
    gen = torch.Generator().manual_seed(1000 * seed + offset)
    xs, ys = zip(*[contact_map(gen) for _ in range(n)])
    return torch.stack(xs), torch.stack(ys)


class ConvBN(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class SmallUNet(nn.Module):
    def __init__(self, c=10):
        super().__init__()
        self.down = ConvBN(1, c)
        self.deep = nn.Sequential(nn.MaxPool2d(2), ConvBN(c, 2 * c), ConvBN(2 * c, 2 * c))
        self.up = nn.ConvTranspose2d(2 * c, c, 2, 2)
        self.fuse = ConvBN(2 * c, c)
        self.last = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.down(x)
        return self.last(self.fuse(torch.cat([a, self.up(self.deep(a))], 1)))


def f1(net, x, y):
    net.eval()
    with torch.no_grad():
        p = net(x) > 0
    net.train()
    t = y > 0.5
    return (2 * (p & t).sum() / (p.sum() + t.sum() + 1e-6)).item()


xtr, ytr = dataset(600, 1)
xte, yte = dataset(150, 2)
batch = 1 if variant == "faulty" else 16
net = SmallUNet()
model = torch.compile(net, backend=compile_backend) if compile_backend else net
opt = torch.optim.Adam(net.parameters(), lr=6e-3)
bce = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(4.0))
curve = []
for it in range(320):
    pick = torch.randint(0, len(xtr), (batch,))
    loss = bce(model(xtr[pick]), ytr[pick])
    opt.zero_grad()
    loss.backward()
    opt.step()
    curve.append(loss.item())
    if it % 64 == 63:
        print(f"it {it + 1} loss {np.mean(curve[-64:]):.4f} test F1 {f1(net, xte, yte):.3f}")

score = f1(net, xte, yte)
print(json.dumps({"loss_first": curve[0], "loss_last": float(np.mean(curve[-20:])), "metric_name": "test_f1",
                  "metric": score, "ok": score > 0.75}))
