"""Where the taps leave their numbers: one row a tap, O(1) numbers a row."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from neuraldbg.torch.measure import PEAKS, SUMS, Number, Numbers

Rows = NDArray[np.float64]
LOWEST = float("-inf")


class HostBank:
    """Rows in host memory, for tensors on the CPU; reading is free.

    Args:
        rows: How many rows.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._clear()

    def _clear(self) -> None:
        self.sums = [[0.0] * len(SUMS) for _ in range(self._rows)]
        self.peaks = [[LOWEST] * len(PEAKS) for _ in range(self._rows)]

    def add(self, row: int, sums: Numbers, peaks: Numbers) -> None:
        """Add one call's numbers to a row; a NaN peak stays."""
        held = self.sums[row]
        for i, number in enumerate(sums):
            held[i] += float(number)
        top = self.peaks[row]
        for i, number in enumerate(peaks):
            if top[i] == top[i] and not float(number) <= top[i]:
                top[i] = float(number)

    def start_drain(self) -> None:
        """Set the rows aside for `drain` and start afresh."""
        self._aside = np.array(self.sums, np.float64), np.array(self.peaks, np.float64)
        self._clear()

    def drain(self) -> tuple[Rows, Rows]:
        """The rows set aside, shapes (rows, sums) and (rows, peaks)."""
        return self._aside


class DeviceBank:
    """Rows in the memory of one accelerator, at addresses that never change.

    `start_drain` copies them to pinned host memory without waiting; `drain`, a step
    later, reads what has arrived.

    Args:
        rows: How many rows.
        device: Where they live.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        # Whatever the user's default device and dtype are.
        self.sums = torch.zeros(rows, len(SUMS), device=device, dtype=torch.float32)
        self.peaks = torch.full((rows, len(PEAKS)), LOWEST, device=device, dtype=torch.float32)
        pin = device.type == "cuda"
        self._host = [
            torch.zeros(t.shape, device="cpu", dtype=torch.float32, pin_memory=pin)
            for t in (self.sums, self.peaks)
        ]
        self._arrived = torch.cuda.Event() if pin else None

    def add(self, row: int, sums: Numbers, peaks: Numbers) -> None:
        """Add one call's numbers to a row: enqueues work, waits for nothing."""
        self.sums[row] += self._line(sums)
        self.peaks[row] = torch.maximum(self.peaks[row], self._line(peaks))

    def _line(self, numbers: Numbers) -> torch.Tensor:
        return torch.stack([self._number(n) for n in numbers])

    def _number(self, number: Number) -> torch.Tensor:
        if isinstance(number, torch.Tensor):
            return number.float()
        # Filled by the device itself: a copy from the host would wait for it.
        return torch.full((), number, device=self.sums.device, dtype=torch.float32)

    def start_drain(self) -> None:
        """Begin the copy to the host and start afresh."""
        for host, held, empty in zip(
            self._host, (self.sums, self.peaks), (0.0, LOWEST), strict=True
        ):
            host.copy_(held, non_blocking=self._arrived is not None)
            held.fill_(empty)
        if self._arrived is not None:
            self._arrived.record()

    def drain(self) -> tuple[Rows, Rows]:
        """What the last `start_drain` copied; waits only if it has not arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        sums, peaks = (h.double().numpy().copy() for h in self._host)
        return sums, peaks


class Ledger:
    """The rows of one monitor, in whichever memory their tensors live.

    Args:
        rows: How many rows.

    Attributes:
        calls: Calls of this step by row.
        order: Rank of the first call by row.
        blind: Rows that got tensors without numbers to look at.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.calls = [0] * rows
        self.order: dict[int, int] = {}
        self.blind: set[int] = set()
        self._banks: dict[torch.device, HostBank | DeviceBank] = {}
        self._drained: list[HostBank | DeviceBank] = []

    def add(self, row: int, device: torch.device, sums: Numbers, peaks: Numbers) -> None:
        """Add one call's numbers to a row."""
        self.met(row)
        bank = self._banks.get(device)
        if bank is None:
            host = device.type == "cpu"
            bank = HostBank(self.rows) if host else DeviceBank(self.rows, device)
            self._banks[device] = bank
        bank.add(row, sums, peaks)

    def met(self, row: int) -> None:
        """Note a call; the first ones give the order of rows."""
        self.calls[row] += 1
        self.order.setdefault(row, len(self.order))

    def start_drain(self) -> list[int]:
        """Set this step's rows aside; returns the calls of each row."""
        calls, self.calls = self.calls, [0] * self.rows
        self._drained = list(self._banks.values())
        for bank in self._drained:
            bank.start_drain()
        return calls

    def drain(self) -> tuple[Rows, Rows]:
        """The rows set aside last, merged over devices."""
        sums, peaks = np.zeros((self.rows, len(SUMS))), np.full((self.rows, len(PEAKS)), LOWEST)
        for bank in self._drained:
            more, tops = bank.drain()
            sums, peaks = sums + more, np.maximum(peaks, tops)
        return sums, peaks
