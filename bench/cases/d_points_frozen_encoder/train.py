# Point-cloud shape classification: registry-built set encoder plus an attention-pooling classifier.
import json
import math
import os

import torch
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)
gen = torch.Generator().manual_seed(SEED + 100)

NPTS = 96
SHAPES = ["sphere", "box", "cylinder", "cone", "torus", "saddle"]


def surface(kind, n):
    u, v = torch.rand(n, generator=gen), torch.rand(n, generator=gen)
    a = 2 * math.pi * u
    if kind == "sphere":
        z = 2 * v - 1
        r = (1 - z ** 2).sqrt()
        p = torch.stack([r * a.cos(), r * a.sin(), z], -1)
    elif kind == "box":
        p = 2 * torch.rand(n, 3, generator=gen) - 1
        face = torch.randint(0, 3, (n,), generator=gen)
        p[torch.arange(n), face] = torch.sign(p[torch.arange(n), face])
    elif kind == "cylinder":
        p = torch.stack([a.cos(), a.sin(), 2 * v - 1], -1)
    elif kind == "cone":
        r = v.sqrt()
        p = torch.stack([r * a.cos(), r * a.sin(), 1 - 2 * r], -1)
    elif kind == "torus":
        b = 2 * math.pi * v
        p = torch.stack([(1 + 0.4 * b.cos()) * a.cos(), (1 + 0.4 * b.cos()) * a.sin(), 0.4 * b.sin()], -1)
    else:
        x, y = 2 * u - 1, 2 * v - 1
        p = torch.stack([x, y, x ** 2 - y ** 2], -1)
    return p


def clouds(n):
    y = torch.randint(0, len(SHAPES), (n,), generator=gen)
    out = torch.stack([surface(SHAPES[k], NPTS) for k in y.tolist()])
    rot, _ = torch.linalg.qr(torch.randn(n, 3, 3, generator=gen))
    out = torch.einsum("npc,ncd->npd", out, rot) * (0.7 + 0.6 * torch.rand(n, 1, 1, generator=gen))
    out = out - out.mean(1, keepdim=True)
    out = out / out.norm(dim=-1).amax(1)[:, None, None]
    return out + 0.02 * torch.randn(out.shape, generator=gen), y


class PointEncoder(nn.Module):
    """shared per-point MLP, two scales of global context"""

    def __init__(self, width=32, out=64):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.mix = nn.Sequential(nn.Linear(2 * width, out), nn.ReLU(), nn.Linear(out, out))

    def forward(self, pts):
        h = self.lift(pts)
        ctx = h.amax(1, keepdim=True).expand_as(h)
        return self.mix(torch.cat([h, ctx], -1))


class GatedPooling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gate = nn.Linear(dim, 1)

    def forward(self, tokens):
        w = self.gate(tokens).softmax(1)
        return (w * tokens).sum(1)


def encoder_factory(name, trainable=False):
    registry = {"pointmlp-s": lambda: PointEncoder(32, 64), "pointmlp-m": lambda: PointEncoder(64, 128)}
    enc = registry[name]()
    if not trainable:
        for p in enc.parameters():
            p.requires_grad_(False)
    return enc


class ShapeClassifier(nn.Module):
    def __init__(self, feature_encoder, dim, n_classes):
        super().__init__()
        self.feature_encoder = feature_encoder
        self.pool = GatedPooling(dim)
        self.head = nn.Linear(dim, n_classes)

    def forward(self, pts):
        return self.head(self.pool(self.feature_encoder(pts)))


if VARIANT == "fixed":
    encoder = encoder_factory("pointmlp-s", trainable=True)
else:
    encoder = encoder_factory("pointmlp-s")
model = ShapeClassifier(encoder, 64, len(SHAPES))
net = torch.compile(model, backend=COMPILE) if COMPILE else model

xtr, ytr = clouds(1200)
xte, yte = clouds(400)
opt = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=4e-3, weight_decay=1e-3)
STEPS, BS = 320, 48
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=4e-3, total_steps=STEPS)

log = []
for step in range(STEPS):
    pick = torch.randint(0, len(xtr), (BS,))
    loss = nn.functional.cross_entropy(net(xtr[pick]), ytr[pick])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    sched.step()
    log.append(loss.item())
    if step % 40 == 0:
        print(f"{step:4d}  loss {sum(log[-20:]) / len(log[-20:]):.3f}  lr {sched.get_last_lr()[0]:.1e}")

model.eval()
with torch.no_grad():
    acc = (model(xte).argmax(-1) == yte).float().mean().item()
last = sum(log[-15:]) / 15
print(json.dumps({"loss_first": log[0], "loss_last": last if math.isfinite(last) else None,
                  "metric_name": "test_accuracy", "metric": acc, "ok": acc > 0.8}))
