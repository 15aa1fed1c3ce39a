"""Crowd counting by density maps: train on random crops, count people on whole photographs."""
import json
import math
import os
import types

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils import data

cfg = types.SimpleNamespace(seed=int(os.environ.get("CASE_SEED", "0")), variant=os.environ.get("CASE_VARIANT", "faulty"),
                            backend=os.environ.get("CASE_COMPILE", ""), crop=32, batch=16, epochs=14, lr=2e-3,
                            wot=0.1, log_para=20.0)
torch.set_num_threads(1)
torch.manual_seed(cfg.seed)


def conv_bn(cin, cout, k=3, d=1):
    return [nn.Conv2d(cin, cout, k, padding=d * (k // 2), dilation=d, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)]


class DensityNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(*conv_bn(1, 12, 5), nn.MaxPool2d(2), *conv_bn(12, 24), *conv_bn(24, 24))
        self.reg_layer = nn.Sequential(*conv_bn(24, 16, d=2), nn.Conv2d(16, 1, 1))

    def forward(self, x):
        return F.softplus(self.reg_layer(self.features(x)) - 3.0)


class Photos(data.Dataset):
    def __init__(self, n, size, method, seed):
        rng = np.random.default_rng(seed)
        self.method = method
        self.items = [self.scene(size, rng) for _ in range(n)]

    @staticmethod
    def scene(size, rng):
        count = int(rng.choice([0, 2, 6, 20, 50])) + int(rng.integers(0, 4))
        pts = rng.uniform(2, size - 2, (count, 2))
        yy, xx = np.mgrid[0:size, 0:size]
        img = np.zeros((size, size), np.float32)
        for y, x in pts:
            img += rng.uniform(0.8, 1.2) * np.exp(-((yy - y) ** 2 + (xx - x) ** 2) / 2.4)
        img = np.clip(img, 0, 1.6) + rng.normal(0, 0.05, img.shape)
        den = np.zeros((size // 2, size // 2), np.float32)
        for y, x in pts:
            den[int(y) // 2, int(x) // 2] += 1
        return img.astype(np.float32), den

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        img, den = self.items[i]
        if self.method == "train":
            c = cfg.crop
            i0, j0 = (2 * int(torch.randint(0, (s - c) // 2 + 1, ())) for s in img.shape)
            img, den = img[i0:i0 + c, j0:j0 + c], den[i0 // 2:(i0 + c) // 2, j0 // 2:(j0 + c) // 2]
            if torch.rand(()) < 0.5:
                img, den = img[:, ::-1], den[:, ::-1]
        return torch.from_numpy(img.copy())[None], torch.from_numpy(den.copy())[None]


class Trainer:
    def setup(self):
        self.dataloaders = {
            "train": data.DataLoader(Photos(384, 48, "train", cfg.seed), batch_size=cfg.batch, shuffle=True, drop_last=True),
            "val": data.DataLoader(Photos(40, 48, "val", cfg.seed + 1000), batch_size=1)}
        net = DensityNet()
        self.model = torch.compile(net, backend=cfg.backend) if cfg.backend else net
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr, weight_decay=1e-4)
        self.history = []

    def train(self):
        for self.epoch in range(cfg.epochs):
            self.train_epoch()
            print("Epoch %2d Train, Loss: %.3f" % (self.epoch, np.mean(self.history[-24:])))
        return self.val_epoch()

    def blurred(self, den):
        k = den.new_tensor([1.0, 2.0, 1.0]) / 4
        return F.conv2d(den, (k[:, None] * k)[None, None], padding=1)

    def train_epoch(self):
        self.model.train()
        for inputs, gd_discrete in self.dataloaders["train"]:
            outputs = self.model(inputs)
            pixel = F.mse_loss(outputs, self.blurred(gd_discrete)) * cfg.log_para
            count = (outputs.sum((1, 2, 3)) - gd_discrete.sum((1, 2, 3))).abs().mean()
            loss = pixel + cfg.wot * count
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.history.append(loss.item())

    def val_epoch(self):
        if cfg.variant == "fixed":
            self.model.eval()
        res = []
        for inputs, gd_discrete in self.dataloaders["val"]:
            with torch.no_grad():
                res.append(self.model(inputs).sum().item() - gd_discrete.sum().item())
        res = np.array(res)
        mae, mse = np.abs(res).mean(), math.sqrt((res ** 2).mean())
        print("Epoch %d Val, MSE: %.2f MAE: %.2f" % (self.epoch, mse, mae))
        return mae


trainer = Trainer()
trainer.setup()
mae = trainer.train()
print(json.dumps({"loss_first": trainer.history[0], "loss_last": float(np.mean(trainer.history[-24:])),
                  "metric_name": "val_count_mae", "metric": float(mae), "ok": bool(mae < 5.5)}))
