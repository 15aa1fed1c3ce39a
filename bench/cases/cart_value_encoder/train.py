"""Predict the value of a shopping cart from the product ids in it (carts have different lengths)."""
import json
import os
import random

import numpy as np
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")

random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
torch.set_num_threads(1)

N_PRODUCTS = 300
EMB = 12


class CartEncoder(nn.Module):
    """One vector per cart: mean of the product embeddings after a small projection."""

    def __init__(self):
        super().__init__()
        self.products = nn.Embedding(N_PRODUCTS, EMB)
        self.proj = nn.Sequential(nn.Linear(EMB, EMB), nn.Tanh())

    def forward(self, cart):
        return self.proj(self.products(cart)).mean(dim=0)


class CartValue(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = CartEncoder()
        self.regressor = nn.Sequential(
            nn.Linear(EMB + 1, 48), nn.ReLU(),
            nn.Linear(48, 48), nn.ReLU(),
            nn.Linear(48, 1),
        )

    def forward(self, carts):
        vectors = [self.encoder(c) for c in carts]
        if VARIANT == "fixed":
            vectors = torch.stack(vectors)
        else:
            vectors = torch.tensor([v.tolist() for v in vectors])
        sizes = torch.tensor([[len(c) / 10.0] for c in carts])
        return self.regressor(torch.cat([vectors, sizes], dim=1)).squeeze(1)


def make_carts(n, worth):
    popularity = 1.0 / (10 + np.arange(N_PRODUCTS))
    popularity /= popularity.sum()
    carts, values = [], []
    for _ in range(n):
        ids = np.random.choice(N_PRODUCTS, size=np.random.randint(2, 9), p=popularity)
        carts.append(torch.as_tensor(ids, dtype=torch.long))
        values.append(worth[ids].mean() + 0.05 * np.random.randn())
    return carts, np.array(values, dtype=np.float32)


worth = np.random.randn(N_PRODUCTS)
train_carts, train_y = make_carts(3000, worth)
test_carts, test_y = make_carts(500, worth)
mu, sd = train_y.mean(), train_y.std()
train_y = torch.from_numpy((train_y - mu) / sd)
test_y = torch.from_numpy((test_y - mu) / sd)

model = CartValue()
if COMPILE:
    model = torch.compile(model, backend=COMPILE)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.MSELoss()

history = []
step = 0
while step < 300:
    order = random.sample(range(len(train_carts)), len(train_carts))
    for start in range(0, len(order) - 31, 32):
        pick = order[start:start + 32]
        pred = model([train_carts[i] for i in pick])
        loss = criterion(pred, train_y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        step += 1
        if step % 50 == 0:
            print(f"[{step:3d}] mse {np.mean(history[-20:]):.4f}")
        if step == 300:
            break

model.eval()
with torch.no_grad():
    pred = model(test_carts)
r2 = 1 - ((pred - test_y) ** 2).mean().item() / test_y.var().item()
print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])),
                  "metric_name": "test_r2", "metric": r2, "ok": r2 > 0.75}))
