"""The run file: one SQLite file per run, written while training, read without torch."""

from neuraldbg.store.locate import RunSummary, list_runs, new_run_id, resolve, runs_dir
from neuraldbg.store.reader import RunFile, load_record
from neuraldbg.store.writer import RunWriter

__all__ = [
    "RunFile",
    "RunSummary",
    "RunWriter",
    "list_runs",
    "load_record",
    "new_run_id",
    "resolve",
    "runs_dir",
]
