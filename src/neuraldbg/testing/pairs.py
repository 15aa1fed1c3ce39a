"""Two faults in one program, of kinds that leave different marks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from neuraldbg.testing.faults import Fault, Strength, all_faults
from neuraldbg.testing.plan import Plan
from neuraldbg.testing.programs import all_programs

if TYPE_CHECKING:
    from neuraldbg.core.diagnosis import Diagnosis

TOP: Final = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """Two faults, by operator and strength, in a program."""

    program: str
    first: tuple[str, Strength]
    second: tuple[str, Strength]

    @property
    def name(self) -> str:
        """What tells pairs apart, also as the name of a file."""
        return f"{self.program}-{self.first[0]}-{self.second[0]}"

    @property
    def faults(self) -> tuple[Fault, Fault]:
        """The two operators."""
        known = all_faults()
        return known[self.first[0]], known[self.second[0]]

    def plan(self) -> Plan:
        """The program with both faults in it.

        Raises:
            ValueError: If one of them does not apply to it.
        """
        plan = all_programs()[self.program]
        for fault, (_, strength) in zip(self.faults, (self.first, self.second), strict=True):
            changed = fault.into(plan, strength)
            if changed is None:
                msg = f"{fault.name} does not apply to {self.program}"
                raise ValueError(msg)
            plan = changed
        return plan

    def named(self, diagnosis: Diagnosis) -> int:
        """How many of the two causes are among the first `TOP` hypotheses."""
        said = [h.cause for h in diagnosis.hypotheses[:TOP]]
        return sum(any(f.accepts(c) for c in said) for f in self.faults)


PAIRS: Final = (
    Pair("digits_mlp", ("softmax_before_cross_entropy", "plain"), ("layer_in_a_list", 0.0)),
    Pair("digits_mlp", ("one_large_layer", 300), ("never_zeroes", "plain")),
    Pair("digits_mlp", ("shuffled_labels", 1.0), ("decays_every_step", 0.7)),
    Pair("digits_cnn", ("trains_in_eval_mode", "plain"), ("cosine_too_short", 0.03)),
    Pair("digits_cnn", ("never_zeroes", "plain"), ("raw_scale", 300)),
    Pair("tumour_logits", ("sigmoid_before_logit_loss", "plain"), ("decay_too_strong", 1.0)),
    Pair("tumour_logits", ("unequal_columns", 1000), ("decays_every_step", 0.7)),
    Pair("diabetes_regression", ("flat_targets", "plain"), ("unequal_columns", 1000)),
    Pair("friedman_huber", ("large_targets", 1000), ("frozen", 0.7)),
    Pair("spirals_tanh", ("constant_weights", 0.1), ("rate_too_low", 1e-5)),
    Pair("residual_mlp", ("detached", 0.99), ("large_weights", 20)),
    Pair("char_transformer", ("heavy_dropout", 0.97), ("decays_every_step", 0.7)),
    Pair("source_words", ("heavy_dropout", 0.97), ("sorted_by_target", "plain")),
    Pair("rows_lstm", ("constant_input", 0.0), ("rate_too_high", 1000)),
)
