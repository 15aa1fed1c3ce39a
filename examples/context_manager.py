"""Watch a training loop of your own: one `with` line, the loop itself stays as it is.

The loop below forgets to clear its gradients. Run it, and read what comes out:

    python examples/context_manager.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg


def moons(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points on two interleaved half circles, and which of the two each is on."""
    labels = torch.randint(2, (count,), generator=generator)
    angle = torch.pi * torch.rand(count, generator=generator)
    side = 1.0 - 2.0 * labels
    points = torch.stack([angle.cos() + labels - 0.5, side * (angle.sin() - 0.25)], dim=1)
    return points + 0.25 * torch.randn(count, 2, generator=generator), labels


def main() -> None:
    """Train under watch, then print the diagnosis."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    criterion = nn.CrossEntropyLoss()

    with NeuralDbg(model, optimizer) as dbg:
        for _ in range(200):
            points, labels = moons(64, generator)
            loss = criterion(model(points), labels)
            loss.backward()
            optimizer.step()

    diagnosis = dbg.diagnosis()
    print(diagnosis)
    for hypothesis in diagnosis.hypotheses:
        print(f"{hypothesis.confidence:.2f}  {hypothesis.cause}  {', '.join(hypothesis.where)}")


if __name__ == "__main__":
    main()
