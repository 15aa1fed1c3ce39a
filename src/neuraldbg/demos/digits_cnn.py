"""Train a small convolutional network on scikit-learn's handwritten digits.

Each fault is one mistake of the kind people make; without a fault the network reads
more than nine in ten of the held-out digits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

FAULTS = {
    "none": "nothing is wrong",
    "lr_too_high": "the learning rate is 2 where 0.05 was meant",
    "lr_too_low": "the learning rate is 1e-6",
    "missing_optimizer_step": "backward runs, but the optimizer never steps",
    "init_symmetric": "every weight starts at the same value",
    "saturating_activation": "sigmoids throughout a stack of six hidden layers",
    "depth_without_normalization": "thirty plain hidden layers",
    "output_activation_mismatch": "a softmax in front of a loss that applies its own",
    "nonfinite_operation": "a hand-written loss takes the logarithm of zero",
    "unnormalized_input": "pixels of 0 to 255, with a gain per row, go in unscaled",
    "nonfinite_input": "pixels that never change are divided by their deviation of zero",
}

TRAIN_IMAGES = 1437
BATCH = 32
LR = 0.05
PASS_MARK = 0.9


class DigitsNet(nn.Module):
    """Two convolutions, a stack of hidden layers, and ten outputs."""

    def __init__(
        self, *, hidden_layers: int, activation: type[nn.Module], softmax: bool = False
    ) -> None:
        super().__init__()
        self.features = nn.Sequential()
        self.features.add_module("conv1", nn.Conv2d(1, 16, kernel_size=3, padding=1))
        self.features.add_module("act1", activation())
        self.features.add_module("conv2", nn.Conv2d(16, 16, kernel_size=3, padding=1))
        self.features.add_module("act2", activation())
        self.features.add_module("pool", nn.AvgPool2d(2))
        self.flatten = nn.Flatten()
        self.hidden = nn.Sequential()
        width = 16 * 4 * 4
        for i in range(1, hidden_layers + 1):
            self.hidden.add_module(f"fc{i}", nn.Linear(width, 64))
            self.hidden.add_module(f"act{i}", activation())
            width = 64
        self.head = nn.Linear(width, 10)
        self.out = nn.Softmax(dim=1) if softmax else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Scores of shape (batch, 10)."""
        x = self.flatten(self.features(images))
        scores: Tensor = self.out(self.head(self.hidden(x)))
        return scores


def load_images(fault: str) -> tuple[Tensor, Tensor]:
    """Images of shape (n, 1, 8, 8) and their digits."""
    digits = load_digits()
    raw = torch.tensor(digits.images, dtype=torch.float32)  # 0..16
    if fault == "unnormalized_input":
        gain = torch.linspace(1, 4, 8)[:, None]
        images = raw * 16 * gain
    elif fault == "nonfinite_input":
        images = (raw - raw.mean(dim=0)) / raw.std(dim=0)
    else:
        images = raw / 8 - 1
    return images[:, None], torch.tensor(digits.target)


def build(fault: str) -> tuple[DigitsNet, torch.optim.Optimizer]:
    """The network and its optimizer."""
    layers = 1
    activation: type[nn.Module] = nn.ReLU
    if fault == "saturating_activation":
        layers = 6
        activation = nn.Sigmoid
    elif fault == "depth_without_normalization":
        layers = 30
    model = DigitsNet(
        hidden_layers=layers,
        activation=activation,
        softmax=fault == "output_activation_mismatch",
    )
    if fault == "init_symmetric":
        for weights in model.parameters():
            nn.init.constant_(weights, 0.01)
    lr = {"lr_too_high": 2.0, "lr_too_low": 1e-6}.get(fault, LR)
    return model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def loss_of(scores: Tensor, labels: Tensor, fault: str) -> Tensor:
    """The mean loss over a batch."""
    if fault == "nonfinite_operation":
        # One yes-or-no question per digit, sharpened, with its likelihood written out by hand.
        wanted = F.one_hot(labels, 10).float()
        said = torch.sigmoid(scores / 0.1)
        return -(wanted * said.log() + (1 - wanted) * (1 - said).log()).sum(dim=1).mean()
    return F.cross_entropy(scores, labels)


def batches(count: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Indices of `steps` shuffled batches, epoch after epoch."""
    done = 0
    while True:
        for rows in torch.randperm(count, generator=generator).split(BATCH):
            if done == steps:
                return
            yield rows
            done += 1


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images that are read correctly."""
    model.eval()
    with torch.no_grad():
        right = model(images).argmax(dim=1) == labels
    model.train()
    return float(right.float().mean())


def train(args: argparse.Namespace) -> None:
    """Train, print progress, and say in the last line how it ended."""
    torch.manual_seed(args.seed)
    images, labels = load_images(args.fault)
    shuffled = torch.randperm(len(images))
    train_rows, test_rows = shuffled[:TRAIN_IMAGES], shuffled[TRAIN_IMAGES:]
    train_images, train_labels = images[train_rows], labels[train_rows]

    model, optimizer = build(args.fault)
    forward: Callable[[Tensor], Tensor] = model
    if args.backend != "eager":
        forward = torch.compile(model, backend=args.backend)

    generator = torch.Generator().manual_seed(args.seed)
    started = time.perf_counter()
    loss = torch.tensor(float("nan"))
    for step, rows in enumerate(batches(TRAIN_IMAGES, args.steps, generator)):
        scores = forward(train_images[rows])
        loss = loss_of(scores, train_labels[rows], args.fault)
        optimizer.zero_grad()
        loss.backward()
        if args.fault != "missing_optimizer_step":
            optimizer.step()
        if step % 25 == 0 or step == args.steps - 1:
            print(f"step {step:4d}  loss {loss.item():8.4f}")

    seconds = time.perf_counter() - started
    score = accuracy(model, images[test_rows], labels[test_rows])
    verdict = "learned" if score > PASS_MARK else "did not learn"
    print(
        f"result: {verdict}, accuracy {score:.4f} on {len(test_rows)} held-out digits, "
        f"last loss {loss.item():.4f}, {args.steps} steps in {seconds:.1f} s"
    )


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    faults = "\n".join(f"  {name:29s}{text}" for name, text in FAULTS.items())
    parser = argparse.ArgumentParser(
        prog="digits_cnn.py",
        description="Train a small convolutional network on handwritten digits.",
        epilog=f"faults:\n{faults}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--backend",
        choices=("inductor", "aot_eager", "eager"),
        default="eager",
        help="torch.compile backend; eager means not compiled at all (default: eager)",
    )
    parser.add_argument("--steps", type=int, default=180, help="optimizer steps (default: 180)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything (default: 0)")
    parser.add_argument(
        "--fault", choices=tuple(FAULTS), default="none", help="the mistake to make, see below"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Run as a script."""
    torch.set_num_threads(1)  # so small a network gains nothing from more
    train(parse(argv))


if __name__ == "__main__":
    main()
