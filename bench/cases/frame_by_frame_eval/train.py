"""CNN on digits; evaluation loops over single frames as the deployed device does."""
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


class FrameNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 18, 3, padding=1), nn.BatchNorm2d(18), nn.ReLU(), nn.MaxPool2d(2),
                                   nn.Conv2d(18, 28, 3, padding=1), nn.BatchNorm2d(28), nn.ReLU(), nn.MaxPool2d(2),
                                   nn.Conv2d(28, 28, 3, padding=1), nn.BatchNorm2d(28), nn.ReLU())
        self.drop = nn.Dropout(0.55)
        self.fc = nn.Linear(28 * 4, 10)

    def forward(self, x):
        return self.fc(self.drop(self.trunk(x).flatten(1)))


d = load_digits()
frames = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(d.target)
p = torch.randperm(len(labels))
frames, labels = frames[p], labels[p]
model = FrameNet()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.Adam(model.parameters(), lr=4e-3)


@torch.no_grad()
def evaluate():
    if VARIANT == "fixed":
        model.eval()
    hits = sum(int(net(frames[i:i + 1]).argmax() == labels[i]) for i in range(1500, 1797))
    model.train()
    return hits / 297


losses = []
for epoch in range(6):
    for chunk in torch.randperm(1500).split(50):
        loss = nn.functional.cross_entropy(net(frames[chunk]), labels[chunk])
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    acc = evaluate()
    print(f"epoch {epoch} loss {sum(losses[-30:]) / 30:.3f} accuracy on single frames {acc:.3f}")
print(json.dumps({"loss_first": losses[0], "loss_last": sum(losses[-30:]) / 30, "metric_name": "frame_accuracy", "metric": acc, "ok": acc > 0.95}))
