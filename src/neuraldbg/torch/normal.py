"""The divergence of one normal distribution from another, read off its graph."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from neuraldbg.torch.nodes import Node, difference, is_square, label, walk

# Operations from what is added up to the mean and the (logarithm of the) variance.
DEPTH: Final = 14
SUMS: Final = frozenset({"Add", "Sub", "Rsub"})
# What it is made of, beside the square of the means' distance: a variance from its logarithm
# (Kingma and Welling 2014, appendix B), or the logarithm of a variance (torch.distributions).
VARIANCES: Final = frozenset({"Exp", "Log"})
# What leads to the entries of other losses, or on into the network.
BEYOND: Final = frozenset(
    ("LogSoftmax", "Softmax", "Logsumexp", "Sigmoid", "LogSigmoid", "Softplus", "Addmm", "Clamp")
)


def is_divergence(node: Node) -> bool:
    """Whether entries are of the form `mean^2 + variance - log(variance) - 1`, up to a factor.

    The likelihood of a normal is none: there a target is subtracted from the mean.

    Args:
        node: What is averaged or added up.
    """
    near = list(takewhile(lambda n: label(n) not in BEYOND, walk(node, DEPTH)))
    met = {label(n) for n in near}
    squared = any(map(is_square, near))
    errs = any(difference(n) is not None for n in near)
    return squared and not errs and bool(met & SUMS) and bool(met & VARIANCES)
