import json
import math
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
SIDE, VIEWS, ACCUM, STEPS = 20, 4, 1, 220


def rotation(a):
    cy, sy, cp, sp = a[:, 0].cos(), a[:, 0].sin(), a[:, 1].cos(), a[:, 1].sin()
    o, z = torch.ones_like(cy), torch.zeros_like(cy)
    ry = torch.stack([cy, z, sy, z, o, z, -sy, z, cy], 1).view(-1, 3, 3)
    rx = torch.stack([o, z, z, z, cp, -sp, z, sp, cp], 1).view(-1, 3, 3)
    return ry @ rx


def render(n, gen):
    """Random cameras over a bumpy ground: per-pixel features, metric depth, world ray directions."""
    ang = (torch.rand(n, 2, generator=gen) - 0.5) * torch.tensor([1.6, 0.6])
    g = torch.linspace(-0.5, 0.5, SIDE)
    v, u = torch.meshgrid(g, g, indexing="ij")
    pix = torch.stack([u, v], -1).view(1, -1, 2).expand(n, -1, -1)
    cam = F.normalize(torch.cat([pix, torch.ones(n, SIDE * SIDE, 1)], -1), dim=-1)
    rays = torch.einsum("nij,npj->npi", rotation(ang), cam)
    depth = 8 + 6 * torch.sin(3 * rays[..., :1]) + 10 * rays[..., 1:2].abs()
    shade = torch.cat([(depth / 10).log(), rays[..., 1:2] * 0.5], -1) + 0.05 * torch.randn(n, SIDE * SIDE, 2, generator=gen)
    feats = torch.cat([pix * 2, ang.unsqueeze(1).expand(-1, SIDE * SIDE, -1), shade], -1)
    return feats, depth, rays


class Head(nn.Module):
    def __init__(self, d, out, hidden=64):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, hidden), nn.Linear(hidden, out)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Rig(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.embed = nn.Linear(6, d)
        self.mixer = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU())
        self.pointmap_head, self.raymap_head = Head(d, 1), Head(d, 3)

    def forward(self, x):
        h = self.embed(x)
        h = h + self.mixer(h)
        return {"depth": self.pointmap_head(h), "rays": self.raymap_head(h)}


class MultiTaskLoss(nn.Module):
    def __init__(self, w_point=1.0, w_ray=3e-5):
        super().__init__()
        self.w_point, self.w_ray = w_point, w_ray

    def forward(self, out, depth, rays):
        point = F.mse_loss(out["depth"].float(), depth)
        ray = (1 - F.cosine_similarity(out["rays"].float(), rays, dim=-1)).mean()
        return self.w_point * point + self.w_ray * ray, point, ray


gen = torch.Generator().manual_seed(SEED)
train, val = render(64, gen), render(8, gen)
model = Rig()
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
criterion = MultiTaskLoss()
optimizer = torch.optim.Adam([{"params": model.parameters(), "lr": 1e-2}], eps=1e-12)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=5e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 14, enabled=VARIANT == "fixed")

log = []
for step in range(STEPS):
    optimizer.zero_grad()
    running = [0.0, 0.0, 0.0]
    for _ in range(ACCUM):
        pick = torch.randint(0, 64, (VIEWS,))
        with torch.autocast(device_type="cpu", dtype=torch.float16):
            out = model(train[0][pick])
        loss, point, ray = criterion(out, train[1][pick], train[2][pick])
        scaler.scale(loss / ACCUM).backward()
        running = [r + x.item() / ACCUM for r, x in zip(running, (loss, point, ray))]
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    log.append(running[0])
    if step % 20 == 0:
        print("step %d loss %.4f pointmap %.4f raymap %.4f" % (step, *running))

model.eval()
with torch.no_grad(), torch.autocast(device_type="cpu", dtype=torch.float16):
    out = model(val[0])
cos = F.cosine_similarity(out["rays"].float(), val[2], dim=-1).clamp(-1, 1)
angle = math.degrees(cos.acos().mean().item())
rmse = F.mse_loss(out["depth"].float(), val[1]).sqrt().item()
print(f"val depth rmse {rmse:.3f} m, ray error {angle:.2f} deg")
print(json.dumps({"loss_first": log[0], "loss_last": sum(log[-10:]) / 10, "metric_name": "ray_error_deg", "metric": angle, "ok": angle < 12.0 and rmse < 2.0}))
