"""Which trials are worth running for a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from neuraldbg.core import metrics as m
from neuraldbg.core.causes.learning_rate import SOUND
from neuraldbg.core.diagnosis import CausalHypothesis
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.core.view import View
from neuraldbg.experiments.interventions import Intervention, interventions_for

LEADING: Final = 3  # hypotheses that are tested by default
STEADY: Final = 0.01  # relative change of the rate below which it counts as constant


@dataclass(frozen=True, slots=True)
class Test:
    """One hypothesis with the interventions that test it, the smallest change first."""

    hypothesis: CausalHypothesis
    interventions: tuple[Intervention, ...]

    @property
    def cause(self) -> str:
        """The cause that is tested."""
        return self.hypothesis.cause


def plan(
    hypotheses: Sequence[CausalHypothesis], record: Record, *, every: bool = False
) -> list[Test]:
    """The hypotheses to test, the likeliest first.

    Args:
        hypotheses: Ranked.
        record: The run, which rules some interventions out.
        every: Test all of them and not only the leading ones.
    """
    tests = [Test(h, _usable(h.cause, record)) for h in hypotheses]
    testable = [t for t in tests if t.interventions]
    return testable if every else testable[:LEADING]


def context(record: Record) -> dict[str, Any]:
    """What the run file knows that an intervention may need."""
    view = View(record, ())
    rates = view.lr.finite().values
    return {
        "layers": [layer.name for layer in view.layers],
        "called": [module.name for module in record.called()],
        "lr_first": float(rates[0]) if len(rates) else None,
        "lr_peak": float(rates.max()) if len(rates) else None,
        "steps": record.facts.run.steps,
    }


def _usable(cause: str, record: Record) -> tuple[Intervention, ...]:
    return tuple(i for i in interventions_for(cause) if not ruled_out(i.name, record))


def ruled_out(name: str, record: Record) -> bool:
    """Whether the recorded facts show that the change would change nothing."""
    check = _RULES.get(name)
    return check is not None and check(record)


def _steady(record: Record) -> bool:
    rates = record.series(Kind.OPTIMIZER, "0.0", m.O_LR).finite().values
    if not len(rates):
        return True
    low, high = float(rates.min()), float(rates.max())
    return math.isclose(low, high, rel_tol=STEADY)


def _never_rises(record: Record) -> bool:
    """Whether the first rate is the peak: then holding the peak is holding the first."""
    rates = record.series(Kind.OPTIMIZER, "0.0", m.O_LR).finite().values
    return _steady(record) or math.isclose(float(rates[0]), float(rates.max()), rel_tol=STEADY)


def _never_zero_first(record: Record) -> bool:
    rates = record.series(Kind.OPTIMIZER, "0.0", m.O_LR).finite().values
    return _steady(record) or float(rates[0]) == 0.0


def _too_far(factor: float) -> Callable[[Record], bool]:
    """Whether a rate multiplied so makes updates larger than sound ones, or nothing says so."""

    def check(record: Record) -> bool:
        # Not `>`: where no update was read, nothing says that it is safe.
        return not View(record, ()).pace * factor <= SOUND

    return check


_RULES: Final[dict[str, Callable[[Record], bool]]] = {
    "lr_x1000": _too_far(1e3),
    "lr_x10000": _too_far(1e4),
    "lr_hold_first": _never_zero_first,
    "lr_hold_peak": _never_rises,
    "no_clipping": lambda record: not any(record.each(Kind.OPTIMIZER, m.O_CLIP_NORM)),
    "unscale_before_clip": lambda record: not record.facts.run.notes.get(m.N_SCALER),
    "eager": lambda record: not record.facts.run.compiled,
    "group_norm": lambda record: not any("BatchNorm" in x.kind for x in record.facts.modules),
}
