"""Over-complete sparse autoencoder on 8x8 digits with an L1 penalty on the code."""
import json
import os

import torch
import torch.nn as nn
from sklearn.datasets import load_digits

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)


class SparseAE(nn.Module):
    def __init__(self, n=64, code=150):
        super().__init__()
        self.encode = nn.Linear(n, code)
        self.decode = nn.Linear(code, n)
        nn.init.constant_(self.encode.bias, 0.0 if VARIANT == "fixed" else -6.0)

    def forward(self, x):
        z = torch.relu(self.encode(x))
        return self.decode(z), z


x = torch.tensor(load_digits().data, dtype=torch.float32)
x = (x - x.mean(0)) / x.std()
x = x[torch.randperm(len(x))]
train, test = x[:1500], x[1500:]
model = SparseAE()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
hist = []
for it in range(420):
    b = train[torch.randint(0, 1500, (40,))]
    rec, z = net(b)
    loss = (rec - b).pow(2).mean() + 1e-3 * z.abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    hist.append(loss.item())
    if it % 70 == 0:
        print(f"{it} loss {loss.item():.4f} active {(z > 0).float().mean().item():.3f}")
with torch.no_grad():
    fvu = ((net(test)[0] - test) ** 2).mean().item() / test.pow(2).mean().item()
print(json.dumps({"loss_first": hist[0], "loss_last": sum(hist[-20:]) / 20, "metric_name": "unexplained_variance", "metric": fvu,
                  "ok": fvu < 0.25}))
