# ruff: noqa: S301, S311 - ordinary random numbers and our own pickles are what is tested
"""Every way to seed random numbers is moved alike, and stays what it is."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from neuraldbg.experiments.seeding import Shift


@pytest.fixture
def begin() -> Iterator[Callable[[int], None]]:
    """Begins a replicate in this process, undone at the end of the test."""
    begun: list[Shift] = []
    streams = random.getstate(), np.random.get_state(), torch.get_rng_state()

    def begin(replicate: int) -> None:
        while begun:
            begun.pop().undo()
        shift = Shift(replicate)
        begun.append(shift)
        shift.python()
        shift.numpy(np)
        shift.torch(torch)

    yield begin
    while begun:
        begun.pop().undo()
    random.setstate(streams[0])
    np.random.set_state(streams[1])
    torch.set_rng_state(streams[2])


def after(seed: Callable[[], object], draw: Callable[[], float]) -> float:
    """What is drawn once a global stream is seeded."""
    seed()
    return draw()


def generator(**seeds: int) -> float:
    """A stream of torch's own."""
    stream = torch.Generator()
    if "seed" in seeds:
        assert stream.manual_seed(seeds["seed"]) is stream
    return float(torch.rand((), generator=stream))


class Stream(np.random.RandomState):
    """A user's own class, made before the seeds are moved."""


def again(seed: int) -> float:
    """A legacy stream that is seeded later."""
    stream = np.random.RandomState()
    stream.seed(seed)
    return float(stream.rand())


SEEDED = {
    "random.seed": lambda: after(lambda: random.seed(3), random.random),
    "random.seed of a text": lambda: after(lambda: random.seed("run"), random.random),
    "random.seed of a float": lambda: after(lambda: random.seed(0.5), random.random),
    "random.Random": lambda: random.Random(3).random(),
    "np.random.seed": lambda: after(lambda: np.random.seed(3), np.random.rand),
    "np.random.seed of a list": lambda: after(lambda: np.random.seed([1, 2]), np.random.rand),
    "RandomState": lambda: np.random.RandomState(3).rand(),
    "RandomState by name": lambda: np.random.RandomState(seed=np.int64(3)).rand(),
    "RandomState.seed": lambda: again(3),
    "default_rng": lambda: np.random.default_rng(3).random(),
    "default_rng by name": lambda: np.random.default_rng(seed=3).random(),
    "default_rng of a list": lambda: np.random.default_rng([3, 1]).random(),
    "PCG64": lambda: np.random.Generator(np.random.PCG64(3)).random(),
    "SeedSequence": lambda: np.random.default_rng(np.random.SeedSequence(3)).random(),
    "spawned": lambda: np.random.default_rng(np.random.SeedSequence(3).spawn(2)[1]).random(),
    "torch.manual_seed": lambda: after(lambda: torch.manual_seed(3), lambda: float(torch.rand(()))),
    "torch.random.manual_seed": lambda: torch.random.manual_seed(3).initial_seed(),
    "torch.Generator": lambda: generator(seed=3),
    "torch.Generator, never seeded": generator,
}


@pytest.mark.parametrize("draw", SEEDED.values(), ids=SEEDED)
def test_a_seed_is_moved_by_the_replicate_and_alike_each_time(
    draw: Callable[[], float], begin: Callable[[int], None]
) -> None:
    plain = draw()
    begin(0)
    assert draw() == plain
    begin(1)
    first = draw()
    assert first != plain
    assert draw() == first
    begin(2)
    assert draw() not in (plain, first)
    begin(1)
    assert draw() == first


UNSEEDED = {
    "random": random.random,
    "numpy": lambda: np.random.rand(),
    "np.random.seed": lambda: after(np.random.seed, np.random.rand),
    "default_rng": lambda: np.random.default_rng().random(),
    "RandomState": lambda: np.random.RandomState().rand(),
    "torch": lambda: float(torch.rand(())),
}


@pytest.mark.parametrize("draw", UNSEEDED.values(), ids=UNSEEDED)
def test_what_is_left_to_chance_is_paired_and_not_constant(
    draw: Callable[[], float], begin: Callable[[int], None]
) -> None:
    drawn = []
    for replicate in (0, 0, 1, 1):
        begin(replicate)
        drawn.append((draw(), draw()))
    assert drawn[0] == drawn[1]
    assert drawn[2] == drawn[3]
    assert drawn[0] != drawn[2]
    assert drawn[0][0] != drawn[0][1]


def test_one_seed_is_moved_by_one_amount_everywhere(begin: Callable[[int], None]) -> None:
    begin(1)
    moved = {
        torch.manual_seed(3).initial_seed(),
        torch.Generator().manual_seed(3).initial_seed(),
        np.random.SeedSequence(3).entropy,
    }
    assert len(moved) == 1


def test_seeding_all_devices_from_within_moves_once(
    begin: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: told.append(seed))
    begin(1)
    told.clear()
    moved = torch.manual_seed(3).initial_seed()  # seeds the devices, too
    torch.cuda.manual_seed_all(3)
    assert told == [moved, moved]


@pytest.mark.parametrize("replicate", [0, 1])
def test_classes_stay_classes(replicate: int, begin: Callable[[int], None]) -> None:
    own = np.random.mtrand._rand
    before = np.random.RandomState(1)
    begin(replicate)
    stream = np.random.RandomState(5)
    for known in (own, before, stream, Stream(1), np.random.mtrand.RandomState(2)):
        assert isinstance(known, np.random.RandomState)
    assert not isinstance(np.random.default_rng(1), np.random.RandomState)
    assert issubclass(Stream, np.random.RandomState)
    assert not isinstance(stream, Stream)
    assert isinstance(torch.default_generator, torch.Generator)
    assert isinstance(torch.Generator(), torch.Generator)

    class Later(np.random.RandomState):
        """A user's own class, made while the seeds are moved."""

    assert isinstance(Later(3), Later)
    assert not isinstance(stream, Later)
    assert Later(3).rand() == np.random.RandomState(3).rand()


@pytest.mark.parametrize("replicate", [0, 1])
@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: np.random.RandomState(5), lambda s: s.rand()),
        (lambda: np.random.default_rng(5), lambda s: s.random()),
        (lambda: np.random.Generator(np.random.MT19937(5)), lambda s: s.random()),
        (lambda: np.random.SeedSequence(5), lambda s: s.generate_state(1)[0]),
        (lambda: random.Random(5), lambda s: s.random()),
        (lambda: torch.Generator().manual_seed(5), lambda s: torch.rand((), generator=s)),
    ],
)
def test_streams_are_pickled_and_copied(
    make: Callable[[], Any], draw: Callable[[Any], Any], replicate: int, begin: Any
) -> None:
    begin(replicate)
    stream = make()
    written = pickle.dumps(stream)
    twin = copy.deepcopy(stream)
    wanted = draw(stream)
    assert draw(pickle.loads(written)) == wanted
    assert draw(twin) == wanted


def test_a_process_without_us_reads_what_was_pickled(begin: Callable[[int], None]) -> None:
    begin(1)
    streams = [np.random.RandomState(5), np.random.default_rng(5), np.random.SeedSequence(5),
               np.random.MT19937(5), random.Random(5), torch.Generator()]  # fmt: skip
    code = (
        "import pickle, sys; found = pickle.load(sys.stdin.buffer); "
        "print(*(type(x).__name__ for x in found))"
    )
    words = [sys.executable, "-c", code]
    other = subprocess.run(words, input=pickle.dumps(streams), capture_output=True, check=True)
    assert other.stdout.decode().split() == [type(x).__name__ for x in streams]


def test_everything_is_put_back() -> None:
    names = [(random, "seed"), (random.Random, "seed"), (np.random, "default_rng"),
             (np.random, "RandomState"), (np.random, "SeedSequence"), (torch, "manual_seed"),
             (torch, "Generator"), (torch.cuda, "manual_seed_all")]  # fmt: skip
    before = [getattr(owner, name) for owner, name in names]
    streams = random.getstate(), np.random.get_state(), torch.get_rng_state()
    shift = Shift(1)
    shift.python()
    shift.numpy(np)
    shift.torch(torch)
    during = [getattr(owner, name) for owner, name in names]
    shift.undo()
    random.setstate(streams[0])
    np.random.set_state(streams[1])
    torch.set_rng_state(streams[2])
    assert all(a is not b for a, b in zip(before, during, strict=True))
    assert [getattr(owner, name) for owner, name in names] == before


def test_a_script_without_numpy_stays_without(tmp_path: Any) -> None:
    from neuraldbg.experiments.spec import Spec

    (tmp_path / "plain.py").write_text(
        "import random, sys\nprint(random.random(), 'numpy' in sys.modules, file=open('said', 'w'))"
    )
    work = str(tmp_path)
    spec = Spec("plain.py", (), False, work, work, f"{work}/o.ndbg", f"{work}/s.json", seed=1)
    words = [sys.executable, "-m", "neuraldbg.experiments.trial", str(spec.write(tmp_path / "x"))]
    subprocess.run(words, check=True, capture_output=True)
    number, numpy = (tmp_path / "said").read_text().split()
    shift = Shift(1)
    state = random.getstate()
    try:
        shift.python()
        assert float(number) == random.random()
    finally:
        shift.undo()
        random.setstate(state)
    assert numpy == "False"
