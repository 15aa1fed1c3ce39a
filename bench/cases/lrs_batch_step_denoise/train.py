import json
import math
import os

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

CFG = {
    "variant": os.environ.get("CASE_VARIANT", "faulty"),
    "seed": int(os.environ.get("CASE_SEED", "0")),
    "compile": os.environ.get("CASE_COMPILE", ""),
    "training": {"batch_size": 16, "num_epochs": 12, "initial_lr": 2e-3,
                 "scheduler": {"name": "ExponentialLR", "gamma": 0.85}},
    "noise_sigma": 0.25,
}
torch.manual_seed(CFG["seed"])
np.random.seed(CFG["seed"])
torch.set_num_threads(1)


class Phantom(Dataset):
    """Axial slices of an ellipse phantom with tissue contrast, corrupted by scanner noise."""

    def __init__(self, n, size=28):
        yy, xx = np.mgrid[:size, :size] / (size - 1) * 2 - 1
        out = np.zeros((n, 1, size, size), np.float32)
        for k in range(n):
            img = np.zeros((size, size))
            img[(xx / np.random.uniform(.75, .95)) ** 2 + (yy / np.random.uniform(.8, .95)) ** 2 < 1] = 0.5
            for _ in range(np.random.randint(3, 7)):
                cx, cy = np.random.uniform(-.5, .5, 2)
                a, b, th = np.random.uniform(.1, .35), np.random.uniform(.1, .35), np.random.uniform(0, np.pi)
                u = (xx - cx) * np.cos(th) + (yy - cy) * np.sin(th)
                v = -(xx - cx) * np.sin(th) + (yy - cy) * np.cos(th)
                img[(u / a) ** 2 + (v / b) ** 2 < 1] += np.random.choice([-.3, .2, .35])
            out[k, 0] = img
        self.clean = torch.from_numpy(out)
        self.noisy = self.clean + CFG["noise_sigma"] * torch.randn_like(self.clean)

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, k):
        return {"input": self.noisy[k], "gt": self.clean[k]}


class DownUp(nn.Module):
    def __init__(self, w=14):
        super().__init__()
        self.first = nn.Conv2d(1, w, 3, padding=1)
        self.down = nn.Conv2d(w, 2 * w, 4, stride=2, padding=1)
        self.mid = nn.Sequential(nn.LeakyReLU(0.1), nn.Conv2d(2 * w, 2 * w, 3, padding=1), nn.LeakyReLU(0.1))
        self.up = nn.ConvTranspose2d(2 * w, w, 4, stride=2, padding=1)
        self.last = nn.Conv2d(2 * w, 1, 3, padding=1)

    def forward(self, x):
        a = nn.functional.leaky_relu(self.first(x), 0.1)
        b = self.up(self.mid(self.down(a)))
        return self.last(torch.cat([a, nn.functional.leaky_relu(b, 0.1)], 1))


def psnr(model, ds):
    model.eval()
    with torch.no_grad():
        mse = (model(ds.noisy) - ds.clean).pow(2).mean().item()
    model.train()
    return -10 * math.log10(mse)


def get_scheduler(opt, params):
    if params["name"] == "ExponentialLR":
        return optim.lr_scheduler.ExponentialLR(opt, params["gamma"])
    return optim.lr_scheduler.CosineAnnealingLR(opt, CFG["training"]["num_epochs"])


def main():
    tp = CFG["training"]
    train, val = Phantom(384), Phantom(60)
    loader = DataLoader(train, batch_size=tp["batch_size"], shuffle=True)
    net = DownUp()
    model = torch.compile(net, backend=CFG["compile"]) if CFG["compile"] else net
    opt = optim.Adam(model.parameters(), lr=tp["initial_lr"])
    sched = get_scheduler(opt, tp["scheduler"])
    log = []
    for epoch in range(1, tp["num_epochs"] + 1):
        for batch in loader:
            pred = model(batch["input"])
            loss = nn.functional.l1_loss(pred, batch["gt"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            if CFG["variant"] != "fixed":
                sched.step()
            log.append(loss.item())
        if CFG["variant"] == "fixed":
            sched.step()
        if epoch % 2 == 0:
            print(f"epoch {epoch} train {np.mean(log[-len(loader):]):.4f} val psnr {psnr(model, val):.2f} dB")
    base = -10 * math.log10((val.noisy - val.clean).pow(2).mean().item())
    gain = psnr(model, val) - base
    print(f"gain over the noisy input {gain:.2f} dB")
    print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-20:])), "metric_name": "psnr_gain_db",
                      "metric": gain, "ok": gain > 7.2}))


if __name__ == "__main__":
    main()
