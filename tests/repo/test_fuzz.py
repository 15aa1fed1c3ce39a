"""A sample of bench/fuzz.py: damaged and hostile run files."""

from __future__ import annotations

import runpy
from pathlib import Path


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    fuzz = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "fuzz.py"))["fuzz"]
    counts = fuzz(210, 7, tmp_path)
    assert not [what for what in counts if "FAULT" in what]
    kinds = {what.partition(":")[0] for what in counts if "refused" in what}
    assert kinds == {"flip", "cut", "smear", "head", "swap", "text", "rewrite"}
