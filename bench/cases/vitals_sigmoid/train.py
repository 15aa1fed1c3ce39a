import json
import os
import torch
import torch.nn as nn

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)

# resting heart rate [bpm] and systolic pressure [mmHg]; alert when both leave the normal band
n = 1200
x_data = torch.stack([75 + 14 * torch.randn(n), 122 + 17 * torch.randn(n)], 1)
dev = ((x_data[:, 0] - 75) / 14) ** 2 + ((x_data[:, 1] - 122) / 17) ** 2
y_data = (dev > 1.4).float().unsqueeze(1)
if VARIANT == "fixed":
    x_data = (x_data - x_data.mean(0)) / x_data.std(0)
x_tr, y_tr, x_te, y_te = x_data[:900], y_data[:900], x_data[900:], y_data[900:]


class Model(nn.Module):
    def __init__(self, n_in, hidden):
        super().__init__()
        self.linear = nn.Linear(n_in, hidden)
        self.linear2 = nn.Linear(hidden, 1)

    def forward(self, x):
        return torch.sigmoid(self.linear2(torch.sigmoid(self.linear(x))))


model = Model(2, 24)
if BACKEND:
    model = torch.compile(model, backend=BACKEND)
criterion = nn.BCELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
losses = []
for step in range(400):
    i = torch.randint(0, 900, (100,))
    loss = criterion(model(x_tr[i]), y_tr[i])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 50 == 0:
        print("step:", step, "loss:", round(loss.item(), 4))
with torch.no_grad():
    acc = ((model(x_te) > 0.5).float() == y_te).float().mean().item()
print(json.dumps({"loss_first": losses[0], "loss_last": sum(losses[-20:]) / 20, "metric_name": "accuracy",
                  "metric": acc, "ok": acc > 0.88}))
