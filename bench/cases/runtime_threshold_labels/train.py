# Classify GPU kernel configurations into fast / slow from their tuning parameters.
import json
import os

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
np.random.seed(SEED)
torch.manual_seed(SEED)
torch.set_num_threads(1)

THRESHOLD = 4.6     # split between fast and slow kernels


def benchmark_table(n):
    """MWG NWG KWG MDIM NDIM VW SA SB and the measured run time in milliseconds."""
    mwg = 2 ** np.random.randint(4, 8, n)
    nwg = 2 ** np.random.randint(4, 8, n)
    kwg = 2 ** np.random.randint(4, 6, n)
    mdim = 2 ** np.random.randint(3, 6, n)
    ndim = 2 ** np.random.randint(3, 6, n)
    vw = 2 ** np.random.randint(0, 4, n)
    sa, sb = np.random.randint(0, 2, n), np.random.randint(0, 2, n)
    work = mwg * nwg / (mdim * ndim)
    log_t = (4.6 + 0.45 * np.log2(work / 16) - 0.35 * (sa + sb) + 0.3 * np.abs(np.log2(vw) - 1)
             + 0.4 * (np.log2(kwg) - 4.5) * (2 * sa - 1) + 0.08 * np.random.randn(n))
    ms = np.clip(np.exp(log_t), 13.0, None)
    return np.stack([mwg, nwg, kwg, mdim, ndim, vw, sa, sb], 1).astype(np.float32), ms.astype(np.float32)


class KernelData(torch.utils.data.Dataset):
    def __init__(self, params, run_time, log_target, mean=None, std=None):
        x = np.log2(params + 1)
        self.mean = x.mean(0) if mean is None else mean
        self.std = x.std(0) if std is None else std
        self.x = torch.from_numpy(((x - self.mean) / self.std).astype(np.float32))
        t = np.log(run_time) if log_target else run_time
        self.y = torch.from_numpy((t > THRESHOLD).astype(np.float32))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Classifier(nn.Module):
    def __init__(self, d, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.score = nn.Linear(width, 1)

    def forward(self, x):
        return self.score(self.body(x)).squeeze(-1)


params, run_time = benchmark_table(3200)
ds = KernelData(params[:2560], run_time[:2560], log_target=(VARIANT == "fixed"))
held_p, held_t = params[2560:], run_time[2560:]
held_x = torch.from_numpy(((np.log2(held_p + 1) - ds.mean) / ds.std).astype(np.float32))
held_slow = torch.from_numpy(held_t > np.exp(THRESHOLD))

net = Classifier(8)
model = torch.compile(net, backend=COMPILE) if COMPILE else net
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=6 * 40)
loader = torch.utils.data.DataLoader(ds, batch_size=64, shuffle=True)

history = []
for epoch in range(6):
    good = 0
    for x, y in loader:
        logit = model(x)
        loss = nn.functional.binary_cross_entropy_with_logits(logit, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        history.append(loss.item())
        good += ((logit > 0) == (y > 0.5)).sum().item()
    print(f"[{epoch}] loss={np.mean(history[-40:]):.5f} train_acc={good / len(ds):.4f}")

with torch.no_grad():
    pred = model(held_x) > 0
rec_slow = (pred & held_slow).sum().item() / held_slow.sum().item()
rec_fast = (~pred & ~held_slow).sum().item() / (~held_slow).sum().item()
bal = 0.5 * (rec_slow + rec_fast)
print(f"held-out recall: slow {rec_slow:.3f} fast {rec_fast:.3f}")
print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])), "metric_name": "balanced_accuracy",
                  "metric": bal, "ok": bal > 0.85}))
