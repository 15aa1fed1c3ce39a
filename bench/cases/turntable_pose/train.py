"""Object pose from turntable footage: image -> (sin, cos) of the turning angle and the camera elevation."""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
PX = 18


def render(theta, elev, light, rng):
    """A lopsided blob model: five bumps at fixed places on a disc that turns under the camera."""
    r = np.array([0.0, 0.45, 0.75, 0.6, 0.85])
    a = np.array([0.0, 0.3, 1.6, 3.4, 4.9])
    h = np.array([0.6, 1.0, 0.7, 0.9, 0.5])
    g = (np.arange(PX) + 0.5) / PX * 2.6 - 1.3
    x = r * np.cos(a + theta)
    y = r * np.sin(a + theta) * np.cos(elev) - 0.3 * h * np.sin(elev)
    d2 = (g[None, None, :] - x[:, None, None]) ** 2 + (g[None, :, None] - y[:, None, None]) ** 2
    img = light * (h[:, None, None] * np.exp(-d2 / 0.06)).sum(0)
    return (img + rng.normal(0, 0.1, img.shape)).astype(np.float32)


class Footage(Dataset):
    """Frames of one or more turns of the table."""

    def __init__(self, turns, frames_per_turn, rng):
        theta = np.concatenate([np.linspace(0, 2 * np.pi, frames_per_turn, endpoint=False) for _ in range(turns)])
        elev = np.repeat(rng.uniform(0.2, 1.0, turns), frames_per_turn) + rng.normal(0, 0.02, len(theta))
        light = np.repeat(rng.uniform(0.8, 1.2, turns), frames_per_turn)
        self.frames = np.stack([render(t, e, li, rng) for t, e, li in zip(theta, elev, light)])
        self.pose = np.stack([np.sin(theta), np.cos(theta), elev], 1).astype(np.float32)

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        return torch.from_numpy(self.frames[i])[None], torch.from_numpy(self.pose[i])


class PoseNet(nn.Module):
    def __init__(self, ch=12):
        super().__init__()
        self.conv1 = nn.Conv2d(1, ch, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(ch, 2 * ch, 3, stride=2, padding=1)
        self.fc1 = nn.Linear(2 * ch * 25, 64)
        self.fc2 = nn.Linear(64, 3)

    def forward(self, x):
        x = F.elu(self.conv1(x))
        x = F.elu(self.conv2(x))
        return self.fc2(F.elu(self.fc1(x.flatten(1))))


class PoseTask:
    def __init__(self):
        rng = np.random.default_rng(SEED)
        self.train_set = Footage(2, 1000, rng)
        self.val_set = Footage(6, 60, rng)
        self.net = PoseNet()
        self.model = torch.compile(self.net, backend=BACKEND) if BACKEND else self.net
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.02, momentum=0.9, nesterov=True)

    def train_dataloader(self):
        if VARIANT == "fixed":
            return DataLoader(self.train_set, batch_size=20, shuffle=True)
        return DataLoader(self.train_set, batch_size=20)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=120)

    def step(self, batch):
        frames, pose = batch
        return F.smooth_l1_loss(self.model(frames), pose, beta=0.3)

    @torch.no_grad()
    def angle_error(self):
        err = []
        for frames, pose in self.val_dataloader():
            p = self.model(frames)
            d = torch.atan2(p[:, 0], p[:, 1]) - torch.atan2(pose[:, 0], pose[:, 1])
            err.append(torch.rad2deg(torch.atan2(d.sin(), d.cos())).abs())
        return torch.cat(err).mean().item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    task = PoseTask()
    loader = task.train_dataloader()
    log = []
    for epoch in range(6):
        for i, batch in enumerate(loader):
            loss = task.step(batch)
            task.optimizer.zero_grad()
            loss.backward()
            task.optimizer.step()
            log.append(loss.item())
            if i % 25 == 24:
                print(f"epoch {epoch} [{i + 1}/{len(loader)}] loss {log[-1]:.4f}")
        print(f"epoch {epoch} mean train loss {np.mean(log[-len(loader):]):.4f} val angle error {task.angle_error():.1f} deg")
    err = task.angle_error()
    fin = lambda v: float(v) if math.isfinite(v) else None
    print(json.dumps({"loss_first": fin(log[0]), "loss_last": fin(np.mean(log[-10:])), "metric_name": "val_angle_error_deg",
                      "metric": fin(err), "ok": bool(err < 15)}))


if __name__ == "__main__":
    main()
