"""Which modules of a run were seen, and why the others were not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind, ModuleFact
from neuraldbg.core.record import Record

CONTAINERS: Final = frozenset(
    ["Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"]
)


@dataclass(frozen=True, slots=True)
class Cover:
    """What was seen of one module.

    Attributes:
        name, kind: The module.
        output, gradient: Whether its output, and the gradient there, were read.
        why: The reason, where one of them was not.
    """

    name: str
    kind: str
    output: bool
    gradient: bool
    why: str = ""

    @property
    def complete(self) -> bool:
        """Whether nothing is missing that could be seen."""
        return self.output and self.gradient


def coverage(record: Record) -> list[Cover]:
    """What was seen of each module, in order of registration."""
    return [_cover(record, module) for module in record.facts.modules]


def _cover(record: Record, module: ModuleFact) -> Cover:
    output, gradient = (
        bool(len(record.series(Kind.MODULE, module.name, metric)))
        for metric in (m.ACT_RMS, m.GRAD_RMS)
    )
    return Cover(module.name, module.kind, output, gradient, _why(module, output, gradient))


def _why(module: ModuleFact, output: bool, gradient: bool) -> str:  # noqa: FBT001 - both are plain
    if output:
        return "" if gradient else "no gradient came back to its output"
    if module.kind in CONTAINERS:
        return "a container: its output is that of its last part"
    if "parametrizations" in module.name.split("."):
        return "it computes a weight, which is read as a parameter"
    if module.order is not None:
        return "its output has no real numbers to look at"
    quiet = module.config.get("no_grad_calls")
    if quiet:
        return f"called {quiet} times in training, but never with gradient"
    return "never called in a training step that was looked at"
