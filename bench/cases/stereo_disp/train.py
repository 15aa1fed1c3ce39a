"""Self-supervised disparity and exposure from stereo pairs: two networks, photometric loss through warping."""
import argparse
import itertools
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
parser = argparse.ArgumentParser(description="stereo self-supervision")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--momentum", type=float, default=0.9, help="alpha parameter for adam")
parser.add_argument("--beta", type=float, default=0.999)
parser.add_argument("--weight-decay", "--wd", type=float, default=0.05 if VARIANT != "fixed" else 0.0)
parser.add_argument("-b", "--batch-size", type=int, default=8)
parser.add_argument("--iterations", type=int, default=300)
parser.add_argument("-s", "--smooth-loss-weight", type=float, default=0.002)
parser.add_argument("--seed", type=int, default=int(os.environ.get("CASE_SEED", "0")))
H, W, MAX_DISP = 24, 40, 6.0


def warp(img, disp):
    """Sample img at x - disp."""
    xs = torch.arange(W, dtype=img.dtype).expand(H, W) - disp[:, 0]
    ys = torch.arange(H, dtype=img.dtype)[:, None].expand(H, W).expand_as(xs)
    grid = torch.stack([2 * xs / (W - 1) - 1, 2 * ys / (H - 1) - 1], -1)
    return F.grid_sample(img, grid, align_corners=True, padding_mode="border")


def make_pairs(n, gen):
    tex = torch.rand(n, 1, H, W, generator=gen)
    tex = F.avg_pool2d(F.pad(tex, (1, 1, 1, 1), mode="reflect"), 3, 1)
    tex = (tex - tex.mean((1, 2, 3), keepdim=True)) / tex.std((1, 2, 3), keepdim=True) * 0.12
    base = F.interpolate(torch.rand(n, 1, 3, 4, generator=gen), (H, W), mode="bicubic", align_corners=True).clamp(0, 1)
    disp = 0.5 + (MAX_DISP - 1) * base
    gain = 1 + 0.4 * torch.randn(n, 1, 1, 1, generator=gen)
    left = warp(tex, disp) * gain + 0.003 * torch.randn(n, 1, H, W, generator=gen)
    return left, tex, disp


class DispNet(nn.Module):
    def __init__(self):
        super().__init__()
        def block(i, o, s=1, d=1):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, d, dilation=d), nn.ReLU(inplace=True))
        self.conv1, self.conv2 = block(8, 24), block(24, 32, 2)
        self.conv3, self.conv4 = block(32, 32), block(32, 32, d=2)
        self.iconv = block(32 + 24, 24)
        self.predict = nn.Sequential(nn.Conv2d(24, 1, 3, padding=1), nn.Sigmoid())

    def forward(self, left, right):
        shifted = torch.stack([torch.roll(right, k, -1) for k in range(int(MAX_DISP) + 1)], 1).squeeze(2)
        a = self.conv1(torch.cat([left, (left - shifted).abs()], 1))
        b = self.conv4(self.conv3(self.conv2(a)))
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return MAX_DISP * self.predict(self.iconv(torch.cat([a, b], 1)))


class ExposureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(2, 12, 5, 2, 2), nn.ReLU(), nn.Conv2d(12, 12, 3, 2, 1), nn.ReLU())
        self.gain = nn.Linear(24, 1)

    def forward(self, left, right):
        h = self.conv(torch.cat([left, right], 1))
        h = torch.cat([h.mean((2, 3)), h.std((2, 3))], 1)
        return 1 + self.gain(h)[:, :, None, None]


def smooth_loss(disp):
    return disp.diff(dim=-1).abs().mean() + disp.diff(dim=-2).abs().mean()


def main():
    args, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    left, right, truth = make_pairs(640, gen)
    v_left, v_right, v_truth = make_pairs(64, gen)

    disp_net, exp_net = DispNet(), ExposureNet()
    run_disp, run_exp = disp_net, exp_net
    if os.environ.get("CASE_COMPILE"):
        run_disp, run_exp = (torch.compile(m, backend=os.environ["CASE_COMPILE"]) for m in (disp_net, exp_net))
    optimizer = torch.optim.Adam(itertools.chain(disp_net.parameters(), exp_net.parameters()), args.lr,
                                 betas=(args.momentum, args.beta), weight_decay=args.weight_decay)
    losses = []
    for i in range(args.iterations):
        pick = torch.randint(0, len(left), (args.batch_size,))
        tgt, ref = left[pick], right[pick]
        disp = run_disp(tgt, ref)
        photo = (warp(ref, disp) * run_exp(tgt, ref) - tgt).abs().mean()
        loss = photo + args.smooth_loss_weight * smooth_loss(disp)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if i % 50 == 0:
            print(f"Train: iter {i:4d} Loss {loss.item():.4f} photo {photo.item():.4f} mean disp {disp.mean().item():.2f}")

    with torch.no_grad():
        epe = (disp_net(v_left, v_right) - v_truth).abs().mean().item()
    trivial = (v_truth - v_truth.mean()).abs().mean().item()
    print(f"end-point error {epe:.3f} px (constant map: {trivial:.3f} px)")
    f = lambda v: v if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(losses[0]), "loss_last": f(float(np.mean(losses[-20:]))), "metric_name": "relative_epe",
                      "metric": f(epe / trivial), "ok": bool(epe < 0.45 * trivial)}))


if __name__ == "__main__":
    main()
