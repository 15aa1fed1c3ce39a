"""Per-pixel depth and viewing rays of a camera rig, predicted from pixel coordinates and a camera code."""
import json
import math
import os
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
np.random.seed(SEED)
torch.manual_seed(SEED)


@dataclass
class Config:
    cams: int = 5
    size: int = 40
    bands: int = 4
    width: int = 48
    lr: float = 4e-3
    steps: int = 140
    w_depth: float = 1.0
    w_ray: float = 1e-4
    precision: str = "fp16"


class Rig:
    """Five pinhole cameras above a rolling ground."""

    def __init__(self, cfg):
        g = np.random.default_rng(SEED + 11)
        lin = (np.arange(cfg.size) + 0.5) / cfg.size * 2 - 1
        v, u = np.meshgrid(lin, lin, indexing="ij")
        self.codes = g.normal(size=(cfg.cams, 6)).astype(np.float32)
        feats, rays, depth = [], [], []
        for c in range(cfg.cams):
            yaw, pitch, f = g.uniform(-1.2, 1.2), g.uniform(-0.4, 0.4), g.uniform(0.9, 1.5)
            d = np.stack([u, v, np.full_like(u, f)], -1)
            ry = np.array([[math.cos(yaw), 0, math.sin(yaw)], [0, 1, 0], [-math.sin(yaw), 0, math.cos(yaw)]])
            rx = np.array([[1, 0, 0], [0, math.cos(pitch), -math.sin(pitch)], [0, math.sin(pitch), math.cos(pitch)]])
            d = d @ (ry @ rx).T
            d /= np.linalg.norm(d, axis=-1, keepdims=True)
            z = 8 + 5 * np.sin(1.5 * u + yaw) * np.cos(1.2 * v) + 3 * v
            enc = [u, v]
            for k in range(cfg.bands):
                enc += [np.sin(math.pi * 2 ** k * u / 2), np.cos(math.pi * 2 ** k * v / 2)]
            enc = np.stack(enc, -1).reshape(-1, 2 + 2 * cfg.bands)
            feats.append(np.concatenate([enc, np.repeat(self.codes[c][None], len(enc), 0)], 1))
            rays.append(d.reshape(-1, 3))
            depth.append(z.reshape(-1, 1))
        t = lambda a: torch.tensor(np.concatenate(a), dtype=torch.float32)
        self.feats, self.rays, self.depth = t(feats), t(rays), t(depth)


class RigDecoder(nn.Module):
    def __init__(self, d_in, width):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(d_in, width), nn.SiLU())
        self.depth_head = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.ray_head = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
                                      nn.Linear(width, 3))

    def forward(self, x):
        h = self.trunk(x)
        return {"depth": self.depth_head(h), "ray": self.ray_head(h)}


class MultiTaskLoss(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def forward(self, out, rig):
        depth = F.smooth_l1_loss(out["depth"].float(), rig.depth)
        ray = (1 - F.cosine_similarity(out["ray"].float(), rig.rays, dim=-1)).mean()
        return self.cfg.w_depth * depth + self.cfg.w_ray * ray, depth.item(), ray.item()


def angle_deg(ray, target):
    return torch.rad2deg(torch.acos(F.cosine_similarity(ray.float(), target, dim=-1).clamp(-1, 1))).mean().item()


def main(cfg):
    rig = Rig(cfg)
    net = RigDecoder(rig.feats.shape[1], cfg.width)
    model = torch.compile(net, backend=BACKEND) if BACKEND else net
    criterion = MultiTaskLoss(cfg)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    amp = (lambda: torch.autocast("cpu", dtype=torch.float16)) if cfg.precision == "fp16" else nullcontext
    scaler = torch.amp.GradScaler("cpu", enabled=VARIANT == "fixed")
    history = []
    for step in range(cfg.steps):
        opt.zero_grad(set_to_none=True)
        with amp():
            out = model(rig.feats)
        loss, depth, ray = criterion(out, rig)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        history.append(loss.item())
        if step % 20 == 0 or step == cfg.steps - 1:
            print(f"step {step:4d} total {loss.item():.4f} depth {depth:.4f} ray {ray:.5f}")
    with torch.no_grad(), amp():
        err = angle_deg(model(rig.feats)["ray"], rig.rays)
    print(f"mean ray error {err:.2f} deg")
    r = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": r(history[0]), "loss_last": r(history[-1]), "metric_name": "ray_error_deg",
                      "metric": r(err), "ok": bool(err < 12.0)}))


if __name__ == "__main__":
    main(Config())
