"""The table of verbs, and the help that is made from it."""

from __future__ import annotations

from typing import Final

VERBS: Final = {
    "run": "run a training script under observation",
    "explain": "diagnose a run file again",
    "list": "list the recorded runs, the newest first",
    "show": "show what is known about a run",
    "check": "exit 1 if a run failed or is suspect (for CI)",
    "doctor": "say what works on this machine",
    "demo": "train a small model with a known fault and explain it",
    "verify": "test the leading causes by experiment",
    "report": "write one self-contained HTML file",
    "diff": "say where two runs part",
    "export": "write the numbers of a run in another format",
    "view": "show runs in the browser, also while they train",
}
"""Each verb with what it does. `neuraldbg.cli.VERB` holds its `main(words) -> int`."""


def _help() -> str:
    lines = [
        "usage: neuraldbg VERB ...",
        "",
        "A causal debugger for PyTorch training: why did the run fail?",
        "",
    ]
    for verb, does in VERBS.items():
        lines.append(f"  {verb:<8} {does}")
    return "\n".join([*lines, *_TAIL]) + "\n"


_TAIL = (
    "",
    "  -h, --help     this text; `neuraldbg VERB --help` says more about a verb",
    "  -V, --version  the version",
    "",
    "Start with `neuraldbg run train.py`, or `neuraldbg demo`.",
    "Run files go to .neuraldbg in the working directory, or to $NEURALDBG_DIR.",
    "NEURALDBG_MODE=off makes the tool inert. Nothing is ever sent anywhere.",
)

HELP: Final = _help()


def unknown(word: str) -> str:
    """What to say about a word that is no verb."""
    from difflib import get_close_matches

    if word.endswith(".py") or word == "-m":
        return f"{word!r} is not a verb; to run a script: neuraldbg run {word}"
    near = get_close_matches(word, VERBS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown verb {word!r}{hint} `neuraldbg --help` lists the verbs"
