"""Two-layer network with raw tensors and a hand-written update, no torch.optim: three-class survey segments."""
import json
import math
import os

import torch
from sklearn.datasets import make_blobs

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
STEP = 0.2 if VARIANT == "fixed" else 2e-6

pts, cls = make_blobs(2400, n_features=9, centers=5, cluster_std=3.2, random_state=SEED + 3)
pts = torch.tensor((pts - pts.mean(0)) / pts.std(0), dtype=torch.float32)
cls = torch.tensor(cls)


class TwoLayer(torch.nn.Module):
    def __init__(self, n_in, hidden, n_out):
        super().__init__()
        self.w1 = torch.nn.Parameter(torch.randn(n_in, hidden) * math.sqrt(2 / n_in))
        self.b1 = torch.nn.Parameter(torch.zeros(hidden))
        self.w2 = torch.nn.Parameter(torch.randn(hidden, n_out) * math.sqrt(2 / hidden))
        self.b2 = torch.nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return torch.relu(x @ self.w1 + self.b1) @ self.w2 + self.b2


model = TwoLayer(9, 33, 5)
forward = torch.compile(model, backend=BACKEND) if BACKEND else model
history = []
for it in range(320):
    b = torch.randint(0, 1900, (46,))
    logits = forward(pts[b])
    loss = (torch.logsumexp(logits, 1) - logits.gather(1, cls[b, None]).squeeze(1)).mean()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= STEP * p.grad
            p.grad = None
    history.append(loss.item())
    if it % 60 == 0:
        print(f"{it} {loss.item():.4f}")
with torch.no_grad():
    acc = (forward(pts[1900:]).argmax(1) == cls[1900:]).float().mean().item()
print(json.dumps({"loss_first": history[0], "loss_last": sum(history[-20:]) / 20, "metric_name": "accuracy", "metric": acc, "ok": acc > 0.85}))
