# class-incremental learning: digits come two classes at a time, each stage through another "camera", with a small replay memory
import json, os
from collections import defaultdict
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
comp = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(seed)
rs = np.random.RandomState(seed)

CAMERAS = [dict(gain=1.0, off=0.0, noise=.05), dict(gain=.6, off=.3, noise=.10), dict(gain=1.4, off=-.2, noise=.15),
           dict(gain=.8, off=.5, noise=.05), dict(gain=1.2, off=-.4, noise=.10)]
STAGES = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
PER_STAGE, NEW, OLD = 70, 32, 48


def through_camera(img, cam):
    return cam["gain"] * img + cam["off"] + cam["noise"] * torch.randn_like(img)


class Memory:
    """class-balanced exemplars, stored with the camera they were taken with"""
    def __init__(self, per_class):
        self.per_class, self.x = per_class, defaultdict(list)

    def add_stage(self, x, y):
        for c in y.unique().tolist():
            sel = x[y == c]
            self.x[c] = [sel[i] for i in rs.permutation(len(sel))[:self.per_class]]

    def sample(self, n):
        cls = rs.choice(sorted(self.x), n)
        return torch.stack([self.x[c][rs.randint(len(self.x[c]))] for c in cls]), torch.as_tensor(cls)


class Net(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.fc1 = nn.Linear(64, width)
        self.ln1 = nn.LayerNorm(width)
        self.fc2 = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.tensor(8.0))
        self.protos = nn.Parameter(torch.randn(10, width) * 0.1)     # cosine classifier

    def forward(self, x):
        h = F.gelu(self.ln1(self.fc1(x)))
        h = h + F.gelu(self.ln2(self.fc2(h)))
        return self.scale * F.normalize(h, dim=1) @ F.normalize(self.protos, dim=1).T


digits = load_digits()
pix = torch.tensor(digits.data, dtype=torch.float32) / 8 - 1
lab = torch.tensor(digits.target)
p = torch.as_tensor(rs.permutation(len(pix)))
pix, lab = pix[p], lab[p]
tr_x, tr_y, te_x, te_y = pix[:1300], lab[:1300], pix[1300:], lab[1300:]


def split(x, y, stage):
    m = torch.isin(y, torch.tensor(STAGES[stage]))
    return through_camera(x[m], CAMERAS[stage]), y[m]


net = Net()
run = torch.compile(net, backend=comp) if comp else net
memory = Memory(20)
tests = [split(te_x, te_y, s) for s in range(5)]
curve, table = [], []

for stage in range(5):
    x, y = split(tr_x, tr_y, stage)
    # classes which have not come yet are kept out of the softmax
    seen = torch.zeros(10, dtype=torch.bool)
    seen[[c for s in STAGES[:stage + 1] for c in s]] = True
    bias = torch.where(seen, 0.0, -1e4)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3 if stage == 0 else 2e-3, weight_decay=1e-3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, PER_STAGE)
    for it in range(PER_STAGE):
        pick = torch.as_tensor(rs.randint(0, len(x), NEW))
        bx, by = x[pick], y[pick]
        if stage:
            ox, oy = memory.sample(OLD)
            bx, by = torch.cat([bx, ox]), torch.cat([by, oy])
        else:
            extra = torch.as_tensor(rs.randint(0, len(x), OLD))
            bx, by = torch.cat([bx, x[extra]]), torch.cat([by, y[extra]])
        loss = F.cross_entropy(run(bx) + bias, by)
        opt.zero_grad()
        loss.backward()
        opt.step()
        cosine.step()
        curve.append(loss.item())
        if it in (0, PER_STAGE - 1):
            print(f"stage {stage} it {it} loss {loss.item():.3f} x mean {bx.mean():.2f} std {bx.std():.2f}")
    memory.add_stage(x, y)
    net.eval()
    with torch.no_grad():
        row = [((net(a) + bias).argmax(1) == b).float().mean().item() for a, b in tests[:stage + 1]]
    net.train()
    table.append(row)
    print("   acc per stage so far:", " ".join("%.2f" % v for v in row))

final = float(np.mean(table[-1]))
forget = float(np.mean([table[s][s] - table[-1][s] for s in range(4)]))
print("forgetting %.3f" % forget)
print(json.dumps({"loss_first": curve[0], "loss_last": curve[-1], "metric_name": "mean_acc_all_stages", "metric": final,
                  "ok": bool(final > 0.85 and forget < 0.15)}))
