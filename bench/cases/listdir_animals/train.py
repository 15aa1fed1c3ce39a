"""Sketch classifier: ten folders of small images read one after the other."""
import json
import os
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)
COUNT = 170


def read_images():
    d = load_digits()
    files = [(f"{c}/{k:03d}.png", img) for c in range(10)
             for k, img in enumerate(d.images[d.target == c][:COUNT])]
    listing = [files[i] for i in rng.permutation(len(files))]
    if VARIANT == "fixed":
        listing = sorted(listing, key=lambda f: f[0])
    return np.stack([img for _, img in listing]).astype("float32") / 16


img_data = read_images()
labels = np.ones(len(img_data), dtype="int64")
for c in range(10):
    labels[c * COUNT:(c + 1) * COUNT] = c

order = rng.permutation(len(img_data))
x = torch.from_numpy(img_data[order]).flatten(1) - 0.3
y = torch.from_numpy(labels[order])
x_train, y_train, x_test, y_test = x[:1400], y[:1400], x[1400:], y[1400:]

model = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 48), nn.GELU(), nn.Linear(48, 10))
if BACKEND:
    model = torch.compile(model, backend=BACKEND)
optim = torch.optim.AdamW(model.parameters(), lr=1.5e-3)
loss_fn = nn.CrossEntropyLoss()

log = []
for epoch in range(7):
    for idx in torch.randperm(1400).split(35):
        loss = loss_fn(model(x_train[idx]), y_train[idx])
        optim.zero_grad()
        loss.backward()
        optim.step()
        log.append(loss.item())
    with torch.no_grad():
        acc = (model(x_test).argmax(1) == y_test).float().mean().item()
    print(f"epoch {epoch + 1}/7 loss {np.mean(log[-40:]):.4f} val_acc {acc:.4f}")

print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-20:])), "metric_name": "val_accuracy",
                  "metric": acc, "ok": acc > 0.85}))
