"""x2 super-resolution of small patches with an EDSR-like network (no batch norm, pixel shuffle, L1)."""
import json
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SEED = int(os.environ.get("CASE_SEED", "0"))
FIXED = os.environ.get("CASE_VARIANT", "faulty") == "fixed"
BACKEND = os.environ.get("CASE_COMPILE", "")


class ResBlock(nn.Module):
    def __init__(self, feats, res_scale):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(feats, feats, 3, padding=1), nn.ReLU(True), nn.Conv2d(feats, feats, 3, padding=1))
        self.res_scale = res_scale

    def forward(self, x):
        return x + self.res_scale * self.body(x)


class EDSR(nn.Module):
    def __init__(self, feats=24, n_blocks=6, scale=2, res_scale=0.5):
        super().__init__()
        self.head = nn.Conv2d(1, feats, 3, padding=1)
        self.body = nn.Sequential(*[ResBlock(feats, res_scale) for _ in range(n_blocks)])
        self.tail = nn.Sequential(nn.Conv2d(feats, feats * scale ** 2, 3, padding=1), nn.PixelShuffle(scale),
                                  nn.Conv2d(feats, 1, 3, padding=1))
        self._initialize_weights()

    def _initialize_weights(self):
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                n = m.out_channels
                if FIXED:
                    n = m.kernel_size[0] * m.kernel_size[1] * m.in_channels
                m.weight.data.normal_(0, math.sqrt(2. / n))
                m.bias.data.zero_()

    def forward(self, x):
        h = self.head(x)
        return self.tail(h + self.body(h))


def scene(rng, size=160, shapes=70):
    """Grey-scale collage of soft-edged discs and striped boxes."""
    yy, xx = np.mgrid[0:size, 0:size]
    im = 0.45 + 0.15 * np.sin(xx / rng.uniform(15, 40) + rng.uniform(0, 6)) * np.cos(yy / rng.uniform(15, 40))
    for _ in range(shapes):
        r, c = rng.integers(0, size, 2)
        tone = rng.uniform(0.05, 0.95)
        if rng.random() < 0.5:
            cover = np.clip(rng.uniform(4, 14) - np.hypot(yy - r, xx - c), 0, 1)
        else:
            angle = rng.uniform(0, np.pi)
            u, v = (xx - c) * np.cos(angle) + (yy - r) * np.sin(angle), (yy - r) * np.cos(angle) - (xx - c) * np.sin(angle)
            cover = np.clip(rng.uniform(4, 14) - np.abs(u), 0, 1) * np.clip(rng.uniform(4, 14) - np.abs(v), 0, 1)
            tone = tone + 0.2 * np.sin(u * rng.uniform(0.5, 1.1))
        im = im * (1 - cover) + np.clip(tone, 0, 1) * cover
    return torch.tensor(im, dtype=torch.float32)


class PatchSampler:
    def __init__(self, rng, hr_size=24):
        self.train = [scene(rng) for _ in range(8)]
        self.test = [scene(rng) for _ in range(3)]
        self.size = hr_size

    def draw(self, n, split, gen):
        out = []
        for _ in range(n):
            im = split[int(torch.randint(len(split), (1,), generator=gen))]
            r = int(torch.randint(im.shape[0] - self.size, (1,), generator=gen))
            c = int(torch.randint(im.shape[1] - self.size, (1,), generator=gen))
            out.append(im[r:r + self.size, c:c + self.size])
        hr = torch.stack(out).unsqueeze(1) - 0.45
        return F.avg_pool2d(hr, 2), hr


def psnr(sr, hr):
    return -10 * torch.log10(((sr - hr) ** 2).mean()).item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    gen = torch.Generator().manual_seed(SEED)
    data = PatchSampler(np.random.default_rng(SEED))
    net = EDSR()
    model = torch.compile(net, backend=BACKEND) if BACKEND else net
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.9, 0.99))
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [350, 450], gamma=0.4)
    test_lr, test_hr = data.draw(64, data.test, torch.Generator().manual_seed(99))
    bicubic = psnr(F.interpolate(test_lr, scale_factor=2, mode="bicubic", align_corners=False), test_hr)
    log = []
    for it in range(1, 501):
        lr, hr = data.draw(12, data.train, gen)
        loss = F.l1_loss(model(lr), hr)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        log.append(loss.item())
        if it % 50 == 0:
            with torch.no_grad():
                print(f"[{it}/500] L1: {np.mean(log[-50:]):.4f}  PSNR {psnr(model(test_lr), test_hr):.2f} dB  (bicubic {bicubic:.2f})")
    with torch.no_grad():
        final = psnr(model(test_lr), test_hr)
    f = lambda v: round(float(v), 5) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(log[0]), "loss_last": f(np.mean(log[-20:])), "metric_name": "test_psnr_db",
                      "metric": f(final), "ok": bool(final > 25.0)}))


if __name__ == "__main__":
    main()
