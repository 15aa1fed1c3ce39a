"""Two faults in one run: are both named among the first three?

    python bench/pairs.py [--pairs N ...] [--keep DIR]
    python bench/pairs.py --rescore DIR

Each pair is two mutation operators of `neuraldbg.testing` in one healthy program, of two
kinds that leave different marks. It counts only if the program then misses its own mark.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from neuraldbg.run import diagnose_file

if TYPE_CHECKING:
    from neuraldbg.core.diagnosis import Diagnosis
    from neuraldbg.testing.faults import Fault

TOP = 3


@dataclass(frozen=True)
class Pair:
    """Two faults, by operator and strength, in a program."""

    program: str
    first: tuple[str, float | str]
    second: tuple[str, float | str]

    @property
    def name(self) -> str:
        """What tells pairs apart, also as the name of a file."""
        return f"{self.program}-{self.first[0]}-{self.second[0]}"


PAIRS = (
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


def faults(pair: Pair) -> tuple[Fault, Fault]:
    """The two operators of a pair."""
    from neuraldbg.testing.faults import all_faults

    known = all_faults()
    return known[pair.first[0]], known[pair.second[0]]


def watched(pair: Pair, seed: int, out: Path) -> bool:
    """Train a program with both faults under watch; whether it misses its mark."""
    from neuraldbg.testing.programs import all_programs
    from neuraldbg.testing.trial import watch

    plan = all_programs()[pair.program]
    for fault, (_, strength) in zip(faults(pair), (pair.first, pair.second), strict=True):
        changed = fault.into(plan, strength)
        if changed is None:
            message = f"{fault.name} does not apply to {pair.program}"
            raise SystemExit(message)
        plan = changed
    return watch(plan, seed, out).suffered


def named(pair: Pair, diagnosis: Diagnosis) -> tuple[bool, bool]:
    """Which of the two causes are among the first hypotheses."""
    said = [h.cause for h in diagnosis.hypotheses[:TOP]]
    first, second = (any(f.accepts(c) for c in said) for f in faults(pair))
    return first, second


def line(pair: Pair, diagnosis: Diagnosis) -> str:
    """A pair and what was said, for people."""
    mark = {0: "neither", 1: "one", 2: "both"}[sum(named(pair, diagnosis))]
    said = " ".join(f"{h.cause} {h.confidence:.2f}" for h in diagnosis.hypotheses[:4])
    wanted = " + ".join(f.cause for f in faults(pair))
    return f"{mark:8} {pair.program:20} {wanted:50} {said or diagnosis.verdict}"


def main() -> int:
    """Run as a script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", nargs="+", type=int, metavar="N", help="only these, from 0")
    parser.add_argument("--seed", type=int, default=0, metavar="SEED")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep run files")
    parser.add_argument("--rescore", type=Path, metavar="DIR", help="diagnose kept runs again")
    options = parser.parse_args()
    folder = options.rescore or options.keep or Path(tempfile.mkdtemp(prefix="pairs-"))
    folder.mkdir(parents=True, exist_ok=True)
    both = counted = 0
    for pair in [PAIRS[n] for n in options.pairs] if options.pairs else PAIRS:
        out = folder / f"{pair.name}.ndbg"
        if not options.rescore and not watched(pair, options.seed, out):
            print(f"harmless {pair.program:20} {pair.first[0]} + {pair.second[0]}", flush=True)
            continue
        diagnosis = diagnose_file(out)
        print(line(pair, diagnosis), flush=True)
        both, counted = both + all(named(pair, diagnosis)), counted + 1
    print(f"\nboth among the first {TOP}: {both} of {counted}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
