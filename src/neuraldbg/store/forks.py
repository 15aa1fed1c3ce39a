"""Keeps a fork from happening while our thread is inside SQLite.

A child forked at that moment would inherit SQLite's mutexes locked for ever, and hang as
soon as it used SQLite itself, as data loading workers do that read their samples from one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

T = TypeVar("T")

# A commit takes milliseconds. On a disk that hangs, a fork goes on after this long.
_PATIENCE_SECONDS: Final = 2.0


class _Gate:
    """The lock that stands between forks and SQLite."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.forking: int | None = None  # the thread that holds the lock for its fork

    def before(self) -> None:
        if self.lock.acquire(timeout=_PATIENCE_SECONDS):
            self.forking = threading.get_ident()

    def in_parent(self) -> None:
        if self.forking == threading.get_ident():
            self.forking = None
            self.lock.release()

    def in_child(self) -> None:
        self.lock = threading.Lock()  # our thread, which may hold the old one, is not here
        self.forking = None


_gate = _Gate()

if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(
        before=_gate.before,
        after_in_parent=_gate.in_parent,
        after_in_child=_gate.in_child,
    )


@contextmanager
def no_fork() -> Iterator[None]:
    """While inside, `os.fork()` of any thread waits."""
    with _gate.lock:
        yield


def guarded(steps: Iterator[T]) -> Iterator[T]:
    """The steps of an iterator, each of them taken inside `no_fork`."""
    while True:
        with no_fork():
            try:
                item = next(steps)
            except StopIteration:
                return
        yield item
