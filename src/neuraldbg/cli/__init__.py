"""The command line: `neuraldbg VERB ...`, one file per verb.

Nothing is imported before it is known that it is needed: verbs that do not train never
import torch, and `--version` and `--help` import next to nothing.

Exit codes: 0 done, 1 findings (`check`, `doctor`), 2 could not run. `run` exits as the
script does.
"""

from neuraldbg.cli.program import main

__all__ = ["main"]
