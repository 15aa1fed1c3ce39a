import json
import os
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

_ = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)

# Transfer: backbone learnt on digits 0-5, then adapted to 6-9 with few labelled images.
# Stem and stage 1 stay fixed (and their norm statistics too), stage 2 gets a tiny rate, new head a normal one.


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False) if (cin != cout or stride != 1) else nn.Identity()

    def forward(self, x):
        h = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(h)) + self.skip(x))


class MiniResNet(nn.Module):
    def __init__(self, n_out):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 12, 3, 1, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU())
        self.stage1 = Block(12, 16, 2)
        self.stage2 = Block(16, 48, 1)
        self.head = nn.Linear(48 * 4, n_out)

    def features(self, x):
        x = self.stage2(self.stage1(self.stem(x)))
        return nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)

    def forward(self, x):
        return self.head(self.features(x))


class FineTuner:
    def __init__(self, net, base_lr, decay, frozen, max_norm):
        self.net, self.frozen, self.max_norm = net, [getattr(net, f) for f in frozen], max_norm
        for m in self.frozen:
            m.requires_grad_(False)
        groups, lr = [], base_lr
        for name in ("head", "stage2"):
            named = list(getattr(net, name).named_parameters())
            groups.append({"params": [p for n, p in named if p.dim() > 1], "lr": lr, "weight_decay": 1e-3})
            groups.append({"params": [p for n, p in named if p.dim() == 1], "lr": lr, "weight_decay": 0.0})
            lr = lr * decay
        self.opt = torch.optim.SGD(groups, momentum=0.9, nesterov=True)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda s: min((s + 1) / 20, (260 - s) / 240))
        self.call = torch.compile(net, backend=COMPILE) if COMPILE else net
        self.norms = []

    def train_mode(self):
        self.net.train()
        for m in self.frozen:
            m.eval()
        for m in self.net.stage2.modules():      # only 10 images per step, keep the pre-trained statistics
            if isinstance(m, nn.BatchNorm2d):
                m.eval()

    def step(self, x, y):
        self.train_mode()
        loss = nn.functional.cross_entropy(self.call(x), y, label_smoothing=0.05)
        self.opt.zero_grad()
        loss.backward()
        params = [p for g in self.opt.param_groups for p in g["params"]]
        self.norms.append(float(nn.utils.clip_grad_norm_(params, self.max_norm)))
        self.opt.step()
        self.sched.step()
        return loss.item()


def shift(x):
    dy, dx = np.random.randint(-1, 2, 2)
    return torch.roll(x, (int(dy), int(dx)), (2, 3))


d = load_digits()
X = torch.tensor(d.images, dtype=torch.float32)[:, None] / 8 - 1
Y = torch.tensor(d.target)
perm = torch.randperm(len(X))
X, Y = X[perm], Y[perm]

# ---- stage A: source task
src = Y < 6
Xs, Ys = X[src], Y[src]
net = MiniResNet(6)
pre = torch.optim.AdamW(net.parameters(), lr=3e-3)
for it in range(90):
    b = torch.randint(0, len(Xs), (48,))
    loss = nn.functional.cross_entropy(net(shift(Xs[b])), Ys[b])
    pre.zero_grad(set_to_none=True)
    loss.backward()
    pre.step()
    if it == 0:
        first = loss.item()
    if it % 30 == 0:
        print("pre", it, round(loss.item(), 3))
state = {k: v.clone() for k, v in net.state_dict().items() if not k.startswith("head.")}

# ---- stage B: target task
Xt, Yt = X[~src], Y[~src] - 6
n_lab = 120
xa, ya, xv, yv = Xt[:n_lab], Yt[:n_lab], Xt[n_lab:], Yt[n_lab:]
new = MiniResNet(4)
missing, unexpected = new.load_state_dict(state, strict=False)
print("new parts:", missing)
ft = FineTuner(new, base_lr=0.5, decay=0.1, frozen=("stem", "stage1"), max_norm=0.05)
for it in range(240):
    b = torch.randint(0, n_lab, (10,))
    last = ft.step(shift(xa[b]), ya[b])
    if it % 40 == 0:
        print(f"ft {it} loss {last:.3f} |g| before clip {ft.norms[-1]:.3f}")

new.eval()
with torch.no_grad():
    acc = (new(xv).argmax(1) == yv).float().mean().item()
    drift = max((new.state_dict()[k] - state[k]).abs().max().item() for k in state if k.startswith(("stem", "stage1")))
print("clipped on %.0f%% of steps, frozen part moved by %g" % (100 * np.mean(np.array(ft.norms) > ft.max_norm), drift))
print(json.dumps({"loss_first": first, "loss_last": last, "metric_name": "target_test_acc", "metric": acc,
                  "ok": bool(acc > 0.88 and drift == 0.0)}))
