import json, os, math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

variant = os.getenv("CASE_VARIANT", "faulty")
seed = int(os.getenv("CASE_SEED", "0"))
compile_backend = os.getenv("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(seed)
np.random.seed(seed)

STATES = ["healthy", "imbalance", "outer_race", "looseness"]
W = 96          # samples per window
PER_REC = 24    # windows per recording


def record(state):
    """One recording of the accelerometer on a machine in the given state."""
    n = W * PER_REC
    t = np.arange(n)
    speed = np.random.uniform(0.9, 1.1)
    gain = np.random.uniform(0.9, 1.1)
    s = 0.35 * np.random.randn(n) + 0.5 * np.sin(2 * np.pi * t * speed / 24)
    if state == 1:
        s += 0.9 * np.sin(2 * np.pi * t * speed / 24)
    elif state == 2:
        s += 1.2 * (np.sin(2 * np.pi * t * speed / 31) > 0.97) * np.random.randn(n)
        s += 0.4 * np.sin(2 * np.pi * t * speed / 5)
    elif state == 3:
        s += 0.5 * np.sin(2 * np.pi * t * speed / 12) + 0.4 * np.sin(2 * np.pi * t * speed / 48)
    return (gain * s).reshape(PER_REC, 1, W).astype(np.float32)


def recordings(per_state):
    return [(torch.from_numpy(record(k)), k) for k in range(4) for _ in range(per_state)]


class VibNet(nn.Module):
    def __init__(self, n_out):
        super().__init__()
        def block(i, o):
            return nn.Sequential(nn.Conv1d(i, o, 7, padding=3), nn.BatchNorm1d(o), nn.ReLU(), nn.MaxPool1d(2))
        self.features = nn.Sequential(block(1, 12), block(12, 24), block(24, 24))
        self.classifier = nn.Sequential(nn.Linear(24, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, n_out))

    def forward(self, x):
        return self.classifier(self.features(x).mean(-1))


def train_epoch(model, x, y, opt):
    model.train()
    out = []
    perm = torch.randperm(len(x))
    for i in range(0, len(x) - 47, 48):
        b = perm[i:i + 48]
        opt.zero_grad()
        loss = F.cross_entropy(model(x[b]), y[b])
        loss.backward()
        opt.step()
        out.append(loss.item())
    return out


@torch.no_grad()
def validate(model, recs):
    if variant == "fixed":
        model.eval()
    hits = total = 0
    for windows, state in recs:
        pred = model(windows).argmax(1)
        hits += (pred == state).sum().item()
        total += len(windows)
    return hits / total


train_recs, val_recs = recordings(25), recordings(8)
x = torch.cat([w for w, _ in train_recs])
y = torch.cat([torch.full((len(w),), k) for w, k in train_recs])

model = VibNet(len(STATES))
if compile_backend:
    model = torch.compile(model, backend=compile_backend)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)

losses = []
for epoch in range(5):
    losses += train_epoch(model, x, y, opt)
    acc = validate(model, val_recs)
    print(f"epoch {epoch} train loss {np.mean(losses[-50:]):.3f} validation accuracy {acc:.3f}")

last = float(np.mean(losses[-20:]))
print(json.dumps({"loss_first": losses[0], "loss_last": last if math.isfinite(last) else None,
                  "metric_name": "val_accuracy", "metric": acc, "ok": acc > 0.9}))
