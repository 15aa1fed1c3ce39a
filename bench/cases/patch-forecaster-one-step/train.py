"""One-step-ahead forecaster with patch tokens and self-attention (PatchTST flavour)."""
import argparse
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.set_num_threads(1)


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--seq-len", type=int, default=48)
    p.add_argument("--pred-len", type=int, default=1)
    p.add_argument("--patch", type=int, default=8)
    p.add_argument("--d-model", type=int, default=32)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--lr", type=float, default=2e-3)
    return p.parse_args([])


def hourly_load(n):
    t = np.arange(n)
    daily = np.sin(2 * np.pi * t / 24) + 0.4 * np.sin(4 * np.pi * t / 24 + 1.0)
    weekly = 0.5 * np.sin(2 * np.pi * t / 168)
    noise = np.zeros(n)
    for i in range(1, n):
        noise[i] = 0.85 * noise[i - 1] + 0.12 * np.random.randn()
    return (daily + weekly + noise).astype(np.float32)


class Windows(Dataset):
    def __init__(self, series, seq_len, pred_len):
        self.s, self.seq_len, self.pred_len = torch.from_numpy(series), seq_len, pred_len

    def __len__(self):
        return len(self.s) - self.seq_len - self.pred_len

    def __getitem__(self, i):
        j = i + self.seq_len
        y = self.s[j:j + self.pred_len]
        return self.s[i:j], y[0] if self.pred_len == 1 else y


class PatchForecaster(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.patch = a.patch
        n = a.seq_len // a.patch
        self.proj = nn.Linear(a.patch, a.d_model)
        self.pos = nn.Parameter(torch.zeros(n, a.d_model))
        layer = nn.TransformerEncoderLayer(a.d_model, 4, 64, dropout=0.05, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(n * a.d_model, a.pred_len)

    def forward(self, x):
        tok = self.proj(x.unfold(1, self.patch, self.patch)) + self.pos
        return self.head(self.encoder(tok).flatten(1))


def evaluate(model, loader):
    model.eval()
    preds, trues = [], []
    with torch.no_grad():
        for x, y in loader:
            preds.append(model(x).reshape(-1))
            trues.append(y.reshape(-1))
    model.train()
    p, t = torch.cat(preds), torch.cat(trues)
    return math.sqrt(((p - t) ** 2).mean()), (1 - ((p - t) ** 2).sum() / ((t - t.mean()) ** 2).sum()).item()


def main():
    a = get_args()
    series = hourly_load(3200)
    mu, sd = series[:2600].mean(), series[:2600].std()
    series = (series - mu) / sd
    train = DataLoader(Windows(series[:2600], a.seq_len, a.pred_len), a.batch_size, shuffle=True, drop_last=True)
    val = DataLoader(Windows(series[2600:], a.seq_len, a.pred_len), 256)
    model = PatchForecaster(a)
    fwd = torch.compile(model, backend=COMPILE) if COMPILE else model
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, a.epochs * len(train))
    criterion = nn.MSELoss()
    history = []
    for ep in range(a.epochs):
        for x_batch, y_batch in train:
            pred = fwd(x_batch)
            if VARIANT == "fixed":
                y_batch = y_batch.view_as(pred)
            loss = criterion(pred, y_batch)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            history.append(loss.item())
        rmse, r2 = evaluate(model, val)
        print(f"epoch {ep + 1}/{a.epochs} train mse {np.mean(history[-len(train):]):.4f} val rmse {rmse:.4f} r2 {r2:.3f}")
    print(json.dumps({"loss_first": history[0], "loss_last": float(np.mean(history[-20:])),
                      "metric_name": "val_r2", "metric": r2, "ok": r2 > 0.7}))


if __name__ == "__main__":
    main()
