"""Rows of numbers, in host memory and on a device, are the same rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Kind
from neuraldbg.torch.bank import LOWEST, DeviceBank, HostBank, Ledger
from neuraldbg.torch.delay import ROOM, Delayed
from neuraldbg.torch.measure import PEAKS, SUMS, measure

ROWS = 4
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]

# Eighths are exact in every dtype here, and drawing them discards nothing.
numbers = st.integers(-(2**15), 2**15).map(lambda x: x / 8)
peaks = st.one_of(numbers, st.sampled_from([float("nan"), float("inf"), -float("inf")]))
calls = st.lists(
    st.tuples(
        st.integers(0, ROWS - 1),
        st.lists(numbers, min_size=len(SUMS), max_size=len(SUMS)),
        st.lists(peaks, min_size=len(PEAKS), max_size=len(PEAKS)),
    ),
    max_size=12,
)


def both(device: str) -> tuple[HostBank, DeviceBank]:
    return HostBank(ROWS), DeviceBank(ROWS, torch.device(device))


@pytest.mark.parametrize("device", DEVICES)
@given(calls, calls)
@settings(deadline=None)
def test_both_banks_hold_the_same(device: str, first: list, second: list) -> None:
    """Two steps, so that the second starts afresh; a NaN peak stays."""
    banks = both(device)
    for made in (first, second):
        for row, sums, peaks in made:
            for bank in banks:
                # Some numbers are known on the host, others only on the device.
                mixed = [
                    torch.tensor(x, device=device) if i % 2 and isinstance(bank, DeviceBank) else x
                    for i, x in enumerate(sums)
                ]
                bank.add(row, mixed, list(peaks))
        for bank in banks:
            bank.start_drain()
        (sums, peaks), (other_sums, other_peaks) = (bank.drain() for bank in banks)
        assert sums.shape == (ROWS, len(SUMS))
        assert peaks.shape == (ROWS, len(PEAKS))
        np.testing.assert_allclose(other_sums, sums, rtol=1e-5, atol=1e-2)
        np.testing.assert_array_equal(other_peaks, peaks)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("flat", [None, "sigmoid", "tanh"])
def test_measures_agree_between_host_and_device(
    device: str, flat: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a device measures without waiting is what the host measures with shortcuts."""
    values = [
        torch.rand(6, 5),
        torch.randn(2, 3, 4),
        torch.tensor([[0.0, float("nan")], [1.0, float("inf")]]),
        -torch.ones(3, 2),
        torch.tensor(2.0),
    ]
    host, there = both(device)
    for row, value in enumerate(values[:ROWS]):
        host.add(row, *measure(value, -1, flat))
        there.add(row, *measure(Elsewhere.of(value.to(device)), -1, flat))
    host.start_drain()
    there.start_drain()
    (sums, peaks), (other_sums, other_peaks) = host.drain(), there.drain()
    np.testing.assert_allclose(other_sums, sums, rtol=1e-6)
    np.testing.assert_array_equal(other_peaks, peaks)


class Elsewhere(Tensor):
    """A tensor that says it is not on the host."""

    @staticmethod
    def of(value: Tensor) -> Elsewhere:
        return value.as_subclass(Elsewhere)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("meta")

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if getattr(function, "__name__", "") == "__get__" and args[0] is not None:
            return super().__torch_function__(function, types, args, kwargs or {})
        plain = [x.as_subclass(Tensor) if isinstance(x, Elsewhere) else x for x in args]
        return function(*plain, **(kwargs or {}))


def test_settings_of_the_user_do_not_matter() -> None:
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        with torch.device("meta"):
            bank = DeviceBank(1, torch.device("cpu"))
            bank.add(0, [1e5] * len(SUMS), [1e5] * len(PEAKS))
            bank.add(0, [1e5] * len(SUMS), [1e5] * len(PEAKS))
            bank.start_drain()
            sums, peaks = bank.drain()
    finally:
        torch.set_default_dtype(default)
    assert sums[0].tolist() == [2e5] * len(SUMS)
    assert peaks[0].tolist() == [1e5] * len(PEAKS)


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_keeps_its_addresses(device: str) -> None:
    """A captured graph writes to the same memory every time."""
    bank = DeviceBank(ROWS, torch.device(device))
    before = bank.sums.data_ptr(), bank.peaks.data_ptr()
    for _ in range(3):
        bank.add(1, [1.0] * len(SUMS), [1.0] * len(PEAKS))
        bank.start_drain()
    assert (bank.sums.data_ptr(), bank.peaks.data_ptr()) == before


def test_a_drain_may_be_read_later() -> None:
    """What is added after `start_drain` belongs to the next step."""
    for bank in both("cpu"):
        bank.add(0, [1.0] * len(SUMS), [1.0] * len(PEAKS))
        bank.start_drain()
        bank.add(0, [5.0] * len(SUMS), [5.0] * len(PEAKS))
        assert bank.drain()[0][0, 0] == 1
        bank.start_drain()
        assert bank.drain()[0][0, 0] == 5


def test_a_ledger_merges_devices_and_remembers_the_order() -> None:
    ledger = Ledger(3)
    cpu, other = torch.device("cpu"), torch.device("cpu", 0)
    ledger.add(2, cpu, [1.0] * len(SUMS), [1.0] * len(PEAKS))
    ledger.add(0, other, [2.0] * len(SUMS), [-3.0] * len(PEAKS))
    ledger.add(2, other, [3.0] * len(SUMS), [4.0] * len(PEAKS))
    ledger.met(1)
    assert ledger.start_drain() == [1, 1, 2]
    assert ledger.order == {2: 0, 0: 1, 1: 2}
    sums, peaks = ledger.drain()
    assert sums[:, 0].tolist() == [2, 0, 4]
    assert peaks[:, 0].tolist() == [-3, LOWEST, 4]
    assert ledger.start_drain() == [0, 0, 0]
    assert ledger.drain()[0].sum() == 0


# -- numbers that come later -----------------------------------------------------------


CHANNEL = Channel(Kind.LOSS, "loss", m.L_VALUE)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [3, 2 * ROOM + 7])
def test_numbers_arrive_in_order(device: str, count: int) -> None:
    """Also more of them than there is room for at once."""
    late = Delayed()
    for step in range(count):
        late.send(step, CHANNEL, torch.tensor(step / 8, device=device))
    assert list(late.arrived(wait=True)) == [(i, CHANNEL, i / 8) for i in range(count)]
    assert list(late.arrived(wait=True)) == []


class Event:
    """An event that happens when it is told to, or is waited for."""

    made: list[Event] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.happened = False
        self.waited = False
        Event.made.append(self)

    def record(self, stream: object) -> None:
        assert stream == "the stream"

    def query(self) -> bool:
        return self.happened

    def synchronize(self) -> None:
        self.happened = self.waited = True


class Far(Tensor):
    """A number that says it is on a CUDA device."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda")


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies that are under way until their event happens; no device is needed."""
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *a, pin_memory, **k: zeros(*a, **k))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "the stream")
    monkeypatch.setattr(Event, "made", [])


@pytest.mark.usefixtures("far")
def test_nobody_waits_for_numbers_under_way() -> None:
    late = Delayed()
    for step in range(3):
        late.send(step, CHANNEL, torch.tensor(float(step)).as_subclass(Far))
    assert list(late.arrived(wait=False)) == []
    Event.made[0].happened = True
    Event.made[2].happened = True
    assert [step for step, *_ in late.arrived(wait=False)] == [0]
    assert not any(event.waited for event in Event.made)
    assert [value for *_, value in late.arrived(wait=True)] == [1, 2]


@pytest.mark.usefixtures("far")
def test_memory_under_way_is_not_written_twice() -> None:
    late = Delayed()
    for step in range(ROOM + 5):
        late.send(step, CHANNEL, torch.tensor(float(step)).as_subclass(Far))
    assert [event.waited for event in Event.made] == [True] * 5 + [False] * ROOM
    assert [value for *_, value in late.arrived(wait=True)] == list(range(ROOM + 5))
