import json
import os

import torch
from sklearn.datasets import load_digits
from torch import nn, optim

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)

Neuron = nn.ReLU if VARIANT == "fixed" else nn.Sigmoid


class AutoEncoder(nn.Module):
    def __init__(self, z_dim=10):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(64, 128), Neuron(),
            nn.Linear(128, 64), Neuron(),
            nn.Linear(64, 32), Neuron(),
            nn.Linear(32, z_dim),
        )
        self.decoder = nn.Sequential(
            nn.Linear(z_dim, 32), Neuron(),
            nn.Linear(32, 64), Neuron(),
            nn.Linear(64, 128), Neuron(),
            nn.Linear(128, 64),
        )

    def forward(self, x):
        z = self.encoder(x)
        return self.decoder(z), z


pixels = torch.tensor(load_digits().data, dtype=torch.float32) / 16.0
perm = torch.randperm(len(pixels))
train_x, test_x = pixels[perm[:1536]], pixels[perm[1536:]]

ae = AutoEncoder()
if BACKEND:
    ae = torch.compile(ae, backend=BACKEND)
bce = nn.BCEWithLogitsLoss()
opt = optim.Adam(ae.parameters(), lr=5e-3)

trace = []
for epoch in range(14):
    order = torch.randperm(len(train_x))
    for i in range(0, len(order), 64):
        batch = train_x[order[i:i + 64]]
        recon, _ = ae(batch)
        loss = bce(recon, batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        trace.append(loss.item())
    if epoch % 2 == 1:
        print("epoch %2d   reconstruction loss %.4f" % (epoch + 1, sum(trace[-24:]) / 24))

with torch.no_grad():
    recon, z = ae(test_x)
    err = ((torch.sigmoid(recon) - test_x) ** 2).sum()
    explained = 1 - (err / ((test_x - train_x.mean(0)) ** 2).sum()).item()
print("explained variance of held-out digits: %.3f" % explained)
print(json.dumps({"loss_first": trace[0], "loss_last": sum(trace[-24:]) / 24, "metric_name": "explained_variance",
                  "metric": explained, "ok": explained > 0.4}))
