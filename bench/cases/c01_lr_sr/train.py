"""SRCNN-like super resolution of small procedural textures (luma only)."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(2)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

CONFIG = {
    "image_size": 32,
    "scale": 2,
    "batch_size": 16,
    "epochs": 12,
    "learning_rate": 2e-3 if VARIANT == "fixed" else 1e-5,
    "grad_clip": None,
}


def texture(size):
    yy, xx = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    img = np.zeros((size, size), dtype=np.float32)
    for _ in range(3):
        th, f, ph = rng.uniform(0, math.pi), rng.uniform(0.3, 0.9), rng.uniform(0, 6.28)
        img += np.sign(np.sin(f * (np.cos(th) * xx + np.sin(th) * yy) + ph)) * rng.uniform(0.05, 0.2)
    img += 0.5 + 0.2 * rng.uniform(-1, 1)
    return np.clip(img, 0, 1)


def make_pairs(n):
    hr = torch.from_numpy(np.stack([texture(CONFIG["image_size"]) for _ in range(n)]))[:, None].float()
    lr = F.avg_pool2d(hr, CONFIG["scale"])
    up = F.interpolate(lr, scale_factor=CONFIG["scale"], mode="bicubic", align_corners=False)
    return up.clamp(0, 1), hr


class SRNet(nn.Module):
    def __init__(self, n1=32, n2=24):
        super().__init__()
        self.patch = nn.Conv2d(1, n1, 7, padding=3)
        self.mapping = nn.Sequential(nn.Conv2d(n1, n2, 3, padding=1), nn.ReLU(), nn.Conv2d(n2, n2, 3, padding=1), nn.ReLU())
        self.recon = nn.Conv2d(n2, 1, 5, padding=2)

    def forward(self, x):
        z = F.relu(self.patch(x))
        return x + self.recon(self.mapping(z))


def psnr(pred, target):
    mse = F.mse_loss(pred.clamp(0, 1), target)
    return float(-10 * torch.log10(mse))


class Trainer:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg
        self.opt = torch.optim.Adam(model.parameters(), lr=cfg["learning_rate"], betas=(0.9, 0.99))
        self.history = []

    def run_epoch(self, inputs, targets):
        self.model.train()
        order = torch.randperm(len(inputs))
        for idx in order.split(self.cfg["batch_size"]):
            out = self.model(inputs[idx])
            loss = F.mse_loss(out, targets[idx])
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            self.history.append(loss.item())

    @torch.no_grad()
    def validate(self, inputs, targets):
        self.model.eval()
        return psnr(self.model(inputs), targets)


def main():
    train_x, train_y = make_pairs(320)
    val_x, val_y = make_pairs(48)
    base = psnr(val_x, val_y)
    print(f"bicubic PSNR {base:.2f} dB")
    net = SRNet()
    if BACKEND:
        net = torch.compile(net, backend=BACKEND)
    tr = Trainer(net, CONFIG)
    for ep in range(CONFIG["epochs"]):
        tr.run_epoch(train_x, train_y)
        if ep % 3 == 2:
            print(f"epoch {ep + 1:2d} loss {np.mean(tr.history[-20:]):.5f} val PSNR {tr.validate(val_x, val_y):.2f}")
    gain = tr.validate(val_x, val_y) - base
    print(json.dumps({"loss_first": tr.history[0], "loss_last": tr.history[-1], "metric_name": "psnr_gain_db",
                      "metric": gain, "ok": bool(gain > 0.5)}))


if __name__ == "__main__":
    main()
