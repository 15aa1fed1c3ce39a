"""What must not be kept of a command line: secrets, and the name of the home directory."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

_NAMES: Final = re.compile(
    r"token|secret|passw|credential|api[-_]?key|auth[-_]?key|access[-_]?key|private[-_]?key",
    re.IGNORECASE,
)
# Prefixes that services give their tokens so that scanners can find them: Hugging Face,
# OpenAI and Anthropic, GitHub, GitLab, Slack, AWS.
_SHAPES: Final = re.compile(
    r"\b(?:hf_|sk-|gh[opsu]_|github_pat_|glpat-|xox[abprs]-|AKIA)[A-Za-z0-9_-]{8,}"
)
_IN_URL: Final = re.compile(r"(?<=://)[^/\s@]+(?=@)")
MASK: Final = "***"


def redact(command: Sequence[str]) -> list[str]:
    """The command without secrets and without the name of the home directory.

    Example:
        >>> redact(["train.py", "--api-key", "abc", "--token=xyz", "s3://me:pw@host/x"])
        ['train.py', '--api-key', '***', '--token=***', 's3://***@host/x']
    """
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    shown: list[str] = []
    masked = False
    for word in command:
        name, equals, _ = word.partition("=")
        secret = (word.startswith("-") or bool(equals)) and bool(_NAMES.search(name))
        if masked and not word.startswith("-"):
            shown.append(MASK)
        else:
            shown.append(f"{name}={MASK}" if secret and equals else _word(word, home))
        masked = secret and not equals
    return shown


def _word(word: str, home: str) -> str:
    if len(home) > 1 and (word == home or word.startswith(home + os.sep)):
        word = "~" + word[len(home) :]
    return _IN_URL.sub(MASK, _SHAPES.sub(MASK, word))
