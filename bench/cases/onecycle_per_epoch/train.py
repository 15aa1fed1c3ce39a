"""Denoising autoencoder on digits with the 1cycle policy."""
import json
import os

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

x = torch.tensor(load_digits().data, dtype=torch.float32)
x = (x - x.mean(0)) / (x.std(0) + 0.5)
x = x[torch.randperm(len(x))]
train_loader = DataLoader(TensorDataset(x[:1408]), batch_size=32, shuffle=True)
valid = x[1408:]
ae = nn.Sequential(nn.Linear(64, 90), nn.LeakyReLU(), nn.Linear(90, 30), nn.LeakyReLU(), nn.Linear(30, 90), nn.LeakyReLU(),
                   nn.Linear(90, 64))
net = torch.compile(ae, backend=BACKEND) if BACKEND else ae
n_epochs = 9
optimizer = torch.optim.NAdam(ae.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, epochs=n_epochs, steps_per_epoch=len(train_loader),
                                                div_factor=200)
mse = nn.MSELoss()
losses = []


def train_one_epoch():
    for (clean,) in train_loader:
        noisy = clean + 0.3 * torch.randn_like(clean)
        loss = mse(net(noisy), clean)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if VARIANT == "fixed":
            scheduler.step()


for epoch in range(n_epochs):
    train_one_epoch()
    if VARIANT != "fixed":
        scheduler.step()
    with torch.no_grad():
        val = mse(net(valid), valid).item()
    print(f"epoch {epoch} val mse {val:.4f}")
ratio = val / valid.var(0).mean().item()
print(json.dumps({"loss_first": losses[0], "loss_last": losses[-1], "metric_name": "unexplained_variance", "metric": ratio,
                  "ok": ratio < 0.35}))
