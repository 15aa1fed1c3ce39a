"""A small network that inductor (torch 2.13, CPU) trains without its convolutions.

    neuraldbg run bench/lost_gradient.py                  # names the layer
    neuraldbg run --compare-eager bench/lost_gradient.py  # shows that eager mode trains it

The last line says how large the gradient of the second convolution is; in eager mode (`--eager`)
it is not zero.
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
labels = torch.tensor(digits.target)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
compiled = model if "--eager" in sys.argv else torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(150):
    rows = torch.randint(0, len(images), (32,))
    loss = nn.functional.cross_entropy(compiled(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"last loss {loss.item():.3f}, gradient of the convolution {model[2].weight.grad.norm():.3g}")
