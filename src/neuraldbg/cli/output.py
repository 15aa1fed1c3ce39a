"""Where words go: results to stdout, notices to stderr.

A reader that stops early (`neuraldbg list | head -1`) is no error, and a stream that
cannot show a character gets its escape.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO


def result(text: str) -> None:
    """Write a result to stdout."""
    try:
        put(sys.stdout, text)
    except BrokenPipeError:
        _silence()


def notice(text: str) -> None:
    """Write one notice to stderr."""
    Notices().say(text)


def fault(text: str, error: BaseException) -> None:
    """Write a notice with the traceback of a failure of ours."""
    from traceback import format_exception

    notices = Notices()
    notices.block("".join(format_exception(error)))
    notices.say(text)


def finish(code: int) -> int:
    """Flush what was written; the exit code stays what it is if nobody reads any more."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
    return code


class Notices:
    """Stderr as it was at the start; a script may replace or close its own."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream: TextIO | None = sys.stderr if stream is None else stream

    def say(self, text: str) -> None:
        """One notice of our own, marked as such."""
        self.block(f"neuraldbg: {text}\n")

    def block(self, text: str) -> None:
        """Text as it is; lost without a word if nobody can read it."""
        try:
            if self._stream is not None:
                put(self._stream, text)
                self._stream.flush()
        except (OSError, ValueError):
            self._stream = None

    @property
    def terminal(self) -> bool:
        """Whether a person is likely to watch."""
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:
            return False

    @property
    def stream(self) -> TextIO | None:
        """Where the words go; None if nobody can read them."""
        return self._stream


def put(stream: TextIO, text: str) -> None:
    """Write, with escapes in place of characters that the stream cannot encode."""
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _silence() -> None:
    """Send the rest of stdout nowhere, so that the interpreter's own flush is quiet too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
