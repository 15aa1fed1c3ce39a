"""One-class detector on 8x8 digits: auto-encoder pre-training, then the encoder is pulled towards a fixed centre."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
NORMAL = 0


class Encoder(nn.Module):
    def __init__(self, rep=16):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8, eps=1e-4, affine=False)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16, eps=1e-4, affine=False)
        self.fc = nn.Linear(16 * 4, rep, bias=False)

    def forward(self, x):
        x = F.max_pool2d(F.leaky_relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.leaky_relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


class AutoEncoder(nn.Module):
    def __init__(self, rep=16):
        super().__init__()
        self.encoder = Encoder(rep)
        self.decoder = nn.Sequential(nn.Linear(rep, 64, bias=False), nn.LeakyReLU(), nn.Linear(64, 64, bias=False), nn.Sigmoid())

    def forward(self, x):
        return self.decoder(self.encoder(x)).view_as(x)


class DeepSVDD:
    def __init__(self, rep=16):
        self.ae = AutoEncoder(rep)
        self.c = None

    def pretrain(self, loader, epochs, lr):
        model = torch.compile(self.ae, backend=BACKEND) if BACKEND else self.ae
        opt = torch.optim.Adam(self.ae.parameters(), lr=lr, weight_decay=1e-6)
        log = []
        for epoch in range(epochs):
            self.ae.train()
            for (x,) in loader:
                opt.zero_grad()
                loss = (model(x) - x).pow(2).flatten(1).sum(1).mean()
                loss.backward()
                opt.step()
                log.append(loss.item())
            if epoch % 10 == 0:
                print(f"pretrain epoch {epoch:3d} loss {np.mean(log[-len(loader):]):.5f}")
        return log

    @torch.no_grad()
    def init_center(self, loader, eps=0.1):
        self.ae.encoder.eval()
        z = torch.cat([self.ae.encoder(x) for (x,) in loader]).mean(0)
        z[(z.abs() < eps) & (z < 0)] = -eps
        z[(z.abs() < eps) & (z >= 0)] = eps
        self.c = z

    def train(self, loader, epochs, lr):
        enc = self.ae.encoder
        model = torch.compile(enc, backend=BACKEND) if BACKEND else enc
        opt = torch.optim.Adam(enc.parameters(), lr=lr, weight_decay=1e-6)
        sched = torch.optim.lr_scheduler.MultiStepLR(opt, [epochs // 2], gamma=0.1)
        log = []
        for epoch in range(epochs):
            enc.train()
            for (x,) in loader:
                opt.zero_grad()
                loss = (model(x) - self.c).pow(2).sum(1).mean()
                loss.backward()
                opt.step()
                log.append(loss.item())
            sched.step()
            if epoch % 10 == 0:
                print(f"svdd epoch {epoch:3d} loss {np.mean(log[-len(loader):]):.6f}")
        return log

    @torch.no_grad()
    def score(self, x):
        self.ae.encoder.eval()
        return (self.ae.encoder(x) - self.c).pow(2).sum(1).numpy()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    np.random.seed(SEED)
    d = load_digits()
    x = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 16
    y = d.target
    own = np.random.permutation(np.where(y == NORMAL)[0])
    test = np.concatenate([own[130:], np.where(y != NORMAL)[0]])
    loader = DataLoader(TensorDataset(x[own[:130]]), batch_size=26, shuffle=True)
    det = DeepSVDD()
    log = det.pretrain(loader, 80, 2e-3)
    det.init_center(loader)
    print(f"AUROC before stage two {roc_auc_score(y[test] != NORMAL, det.score(x[test])):.4f}")
    log += det.train(loader, 80, 1e-3)
    auc = roc_auc_score(y[test] != NORMAL, det.score(x[test]))
    f = lambda v: round(float(v), 6) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(log[0]), "loss_last": f(np.mean(log[-10:])), "metric_name": "auroc", "metric": f(auc),
                      "ok": bool(auc > 0.93)}))


if __name__ == "__main__":
    main()
