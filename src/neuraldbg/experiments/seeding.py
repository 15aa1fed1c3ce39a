"""Replicates: every seed that a script sets, moved by the number of the replicate.

A stream of random numbers may feed the weights, the order of the data, noise, or data that
the script draws: from outside one cannot tell which, and one stream often feeds several. So
all seeds move, each by the same amount wherever it is used: what was drawn alike (the two
halves of a split, a generator that is seeded again to test on the same samples) still is.
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
import random
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

STRIDE: Final = 1_000_003  # a prime, so that neighbouring seeds of scripts do not meet
_SIZE: Final = 2**32  # what NumPy takes

# Classes of NumPy that take a seed, which their subclasses may take over.
_NUMPY_CLASSES: Final = ("RandomState", "SeedSequence", "MT19937", "PCG64", "PCG64DXSM", "SFC64")
_DEVICES: Final = ("cuda", "mps", "xpu", "mtia")


class Shift:
    """Moves the seeds of one trial.

    Each library is prepared on its own, once it is imported: a script that does without
    NumPy keeps doing without.

    Args:
        replicate: 0 leaves the script's own seeds as they are.
    """

    def __init__(self, replicate: int) -> None:
        self._offset = replicate * STRIDE
        self._fresh = itertools.count(self._offset + 1)
        self._pid = os.getpid()
        self._calls = threading.local()
        self._undo: list[Callable[[], None]] = []

    def undo(self) -> None:
        """Put every original back."""
        while self._undo:
            self._undo.pop()()

    def python(self) -> None:
        """Seed `random`, and move what is seeded there from now on."""
        random.seed(self._offset)
        self._function(random, "seed", new=True)
        if self._offset:
            # On the class itself, which is an ordinary one: instances and subclasses follow.
            self._replace(random.Random, "seed", self._seeded(random.Random.seed, at=1))

    def numpy(self, numpy: ModuleType) -> None:
        """Seed NumPy; generators that the script leaves to chance get a seed, too.

        Args:
            numpy: The module, imported.
        """
        home = numpy.random
        home.seed(self._offset)
        for name in ("seed", "default_rng"):
            self._function(home, name, new=True)
        for name in _NUMPY_CLASSES:
            original = getattr(home, name)
            takes = [method for method in ("__init__", "seed") if hasattr(original, method)]
            self._class(
                home,
                original,
                {m: self._seeded(getattr(original, m), at=1, new=True) for m in takes},
            )

    def torch(self, torch: ModuleType) -> None:
        """Seed torch, on every device.

        Args:
            torch: The module, imported.
        """
        torch.manual_seed(self._offset)
        if not self._offset:
            return
        self._function(torch, "manual_seed")
        self._replace(torch.random, "manual_seed", torch.manual_seed)
        for device in (getattr(torch, name, None) for name in _DEVICES):
            for name in ("manual_seed", "manual_seed_all"):
                if callable(getattr(device, name, None)):
                    self._function(device, name)
        self._generator(torch)

    def _generator(self, torch: ModuleType) -> None:
        original = torch.Generator
        seed = original.manual_seed

        def start(generator: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            # One that is never seeded starts from torch's constant.
            seed(generator, (generator.initial_seed() + self._offset) % _SIZE)

        changes = {"__init__": start, "manual_seed": self._seeded(seed, at=1)}
        self._class(torch, original, changes)

    def _function(self, owner: Any, name: str, *, new: bool = False) -> None:  # noqa: ANN401
        self._replace(owner, name, self._seeded(getattr(owner, name), new=new))

    def _class(self, owner: Any, original: type, changes: dict[str, Any]) -> None:  # noqa: ANN401
        """A subclass in the place of a class whose methods cannot be replaced.

        It goes by the name of the original, so that its instances can be pickled and read
        by a process that knows the original only; instances of the original are its own.
        """
        name = original.__name__
        meta = type("Meta", (_Same, type(original)), {})
        space = {**changes, "__module__": owner.__name__, "__doc__": original.__doc__}
        self._replace(owner, name, meta(name, (original,), {**space, "stands_for": original}))

    def _replace(self, owner: Any, name: str, made: Any) -> None:  # noqa: ANN401
        original = getattr(owner, name)
        setattr(owner, name, made)
        self._undo.append(lambda: setattr(owner, name, original))

    def _seeded(
        self, original: Callable[..., Any], *, at: int = 0, new: bool = False
    ) -> Callable[..., Any]:
        """A function that takes a seed, told another one.

        Args:
            original: The function.
            at: Which of its arguments is the seed; it may be missing.
            new: Whether a missing seed is replaced by one of ours.
        """

        @functools.wraps(original)
        def seeded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            # Seeding calls seeding, e.g. torch that of its devices: moved once.
            if getattr(self._calls, "inside", False):
                return original(*args, **kwargs)
            self._calls.inside = True
            try:
                if len(args) > at:
                    args = (*args[:at], self._moved(args[at], new=new), *args[at + 1 :])
                elif name := next(iter(kwargs.keys() & _NAMES), None):
                    kwargs[name] = self._moved(kwargs[name], new=new)
                elif new:
                    args = (*args, self._moved(None, new=True))
                return original(*args, **kwargs)
            finally:
                self._calls.inside = False

        return seeded

    def _moved(self, seed: Any, *, new: bool) -> Any:  # noqa: ANN401
        # Workers are forked with our counter: they would all draw the same.
        if seed is None and new and os.getpid() == self._pid:
            return next(self._fresh)
        if not self._offset or seed is None:
            return seed
        if isinstance(seed, str):
            return f"{seed}+{self._offset}"
        if isinstance(seed, float):
            return seed + self._offset
        if isinstance(seed, (list, tuple)):
            return [*seed, self._offset]
        try:
            return (operator.index(seed) + self._offset) % _SIZE
        except TypeError:  # another generator, bytes, an array: as the script has it
            return seed


_NAMES: Final = frozenset({"a", "x", "seed", "entropy"})  # what the argument is called


class _Same(type):
    """A class that stands for another one: the other's instances and subclasses are its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        original = vars(cls).get("stands_for")
        return isinstance(instance, original) if original else super().__instancecheck__(instance)

    def __subclasscheck__(cls, kind: type) -> bool:
        original = vars(cls).get("stands_for")
        return issubclass(kind, original) if original else super().__subclasscheck__(kind)
