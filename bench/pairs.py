"""Two faults in one run: are both named among the first three?

    python bench/pairs.py [--pairs N ...] [--keep DIR]
    python bench/pairs.py --rescore DIR

Each pair is two mutation operators of `neuraldbg.testing` in one healthy program
(`neuraldbg.testing.pairs`). It counts only if the program then misses its own mark.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.run import diagnose_file
from neuraldbg.testing.pairs import PAIRS, TOP, Pair
from neuraldbg.testing.trial import watch

MARKS = ("neither", "one", "both")


def line(pair: Pair, diagnosis: Diagnosis) -> str:
    """A pair and what was said, for people."""
    said = " ".join(f"{h.cause} {h.confidence:.2f}" for h in diagnosis.hypotheses[:4])
    wanted = " + ".join(f.cause for f in pair.faults)
    mark = MARKS[pair.named(diagnosis)]
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
        if not options.rescore and not watch(pair.plan(), options.seed, out).suffered:
            print(f"harmless {pair.program:20} {pair.first[0]} + {pair.second[0]}", flush=True)
            continue
        diagnosis = diagnose_file(out)
        print(line(pair, diagnosis), flush=True)
        both, counted = both + (pair.named(diagnosis) == 2), counted + 1
    print(f"\nboth among the first {TOP}: {both} of {counted}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
