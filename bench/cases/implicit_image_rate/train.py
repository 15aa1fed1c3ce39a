# Fit a single colour photo with a coordinate network (sine activations), report PSNR
import os, json, math
import numpy as np
import torch
from torch import nn

VARIANT = os.getenv("CASE_VARIANT", "faulty")
SEED = int(os.getenv("CASE_SEED", 0))
BACKEND = os.getenv("CASE_COMPILE", "")

torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)

cfg = dict(side=48, width=64, depth=3, omega=12.0, steps=320, pixels_per_step=768,
           lr=5e-3 if VARIANT == "fixed" else 2e-5)


class Sine(nn.Module):
    def __init__(self, n_in, n_out, omega, first=False):
        super().__init__()
        self.lin = nn.Linear(n_in, n_out)
        self.omega = omega
        bound = 1 / n_in if first else math.sqrt(6 / n_in) / omega
        nn.init.uniform_(self.lin.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.omega * self.lin(x))


def picture(side):
    ys, xs = np.mgrid[0:side, 0:side] / (side - 1) * 2 - 1
    sky = np.stack([0.35 + 0.2 * ys, 0.5 + 0.15 * ys, 0.8 - 0.2 * ys], -1)
    img = sky.copy()
    hill = ys > 0.25 + 0.2 * np.sin(4 * xs + np.random.uniform(0, 6))
    img[hill] = [0.2, 0.45, 0.15]
    tower = (np.abs(xs - 0.2) < 0.12) & (ys > -0.6) & (ys < 0.5)
    img[tower] = [0.9, 0.85, 0.8]
    stripes = tower & (np.sin(14 * ys) > 0)
    img[stripes] = [0.75, 0.15, 0.1]
    sun = (xs + 0.55) ** 2 + (ys + 0.6) ** 2 < 0.04
    img[sun] = [0.98, 0.9, 0.4]
    return np.stack([xs, ys], -1).reshape(-1, 2).astype("f4"), img.reshape(-1, 3).astype("f4")


coords, rgb = map(torch.from_numpy, picture(cfg["side"]))
layers = [Sine(2, cfg["width"], cfg["omega"], first=True)]
layers += [Sine(cfg["width"], cfg["width"], cfg["omega"]) for _ in range(cfg["depth"] - 1)]
field = nn.Sequential(*layers, nn.Linear(cfg["width"], 3))
net = torch.compile(field, backend=BACKEND) if BACKEND else field
optim = torch.optim.Adam(field.parameters(), lr=cfg["lr"])
sched = torch.optim.lr_scheduler.LambdaLR(optim, lambda t: 0.2 ** min(t / cfg["steps"], 1))

curve = []
for t in range(cfg["steps"]):
    pick = torch.randint(0, len(coords), (cfg["pixels_per_step"],))
    loss = ((net(coords[pick]) - rgb[pick]) ** 2).mean()
    optim.zero_grad()
    loss.backward()
    optim.step()
    sched.step()
    curve.append(loss.item())
    if t % 40 == 0:
        print(f"{t:4d}  mse={loss.item():.5f}  psnr={-10 * math.log10(loss.item()):.2f}")

with torch.no_grad():
    mse = ((net(coords) - rgb) ** 2).mean().item()
psnr = -10 * math.log10(mse)
print(json.dumps({"loss_first": curve[0], "loss_last": curve[-1], "metric_name": "psnr_db", "metric": psnr,
                  "ok": psnr > 22.0}))
