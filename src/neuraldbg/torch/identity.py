"""A mapping keyed by tensor identity: tensors compare entry by entry, and ids are reused."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from torch import Tensor

V = TypeVar("V")


class ByTensor(Generic[V]):
    """Values by tensor, which is held weakly."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[Tensor], V]] = {}

    def get(self, tensor: Tensor) -> V | None:
        """The value of a tensor, or None."""
        ref, value = self._kept.get(id(tensor), (None, None))
        return value if ref is not None and ref() is tensor else None

    def put(self, tensor: Tensor, value: V) -> None:
        """Set the value of a tensor; room of freed tensors is used again."""
        if id(tensor) not in self._kept and len(self._kept) % 64 == 63:
            self._kept = {k: kept for k, kept in self._kept.items() if kept[0]() is not None}
        self._kept[id(tensor)] = (weakref.ref(tensor), value)

    def items(self) -> list[tuple[Tensor, V]]:
        """The tensors that are alive, with their values."""
        pairs = ((ref(), value) for ref, value in self._kept.values())
        return [(tensor, value) for tensor, value in pairs if tensor is not None]

    def __contains__(self, tensor: Tensor) -> bool:
        ref, _ = self._kept.get(id(tensor), (None, None))
        return ref is not None and ref() is tensor

    def __bool__(self) -> bool:
        return bool(self._kept)
