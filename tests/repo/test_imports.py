"""The hub, the store and the reports must work where there is no torch."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

import neuraldbg

from .imports import brought_along

WITHOUT_TORCH = ("core", "store", "report")
HEAVY = frozenset({"torch", "sklearn", "scipy", "pandas", "matplotlib", "networkx"})


def modules_of(package: str) -> list[str]:
    found = importlib.import_module(f"neuraldbg.{package}")
    inside = pkgutil.walk_packages(found.__path__, prefix=f"{found.__name__}.")
    return [found.__name__, *(module.name for module in inside)]


@pytest.mark.parametrize("package", WITHOUT_TORCH)
def test_what_reads_a_run_never_loads_torch(package: str) -> None:
    names = modules_of(package)
    assert len(names) > 1
    assert not brought_along(names) & HEAVY


def test_the_front_door_is_light() -> None:
    assert not brought_along(["neuraldbg"]) & (HEAVY | {"numpy", "sqlite3"})


def test_the_check_can_fail(tmp_path: Path) -> None:
    """A module that loads torch, through another, does not go unnoticed."""
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "inner.py").write_text("def load():\n    import torch\nload()\n")
    (tmp_path / "outer.py").write_text("import inner\n")
    seen = brought_along(["outer"], path=str(tmp_path))
    assert seen & HEAVY == {"torch"}


def test_every_public_name_resolves() -> None:
    assert sorted(neuraldbg.__all__) == list(neuraldbg.__all__)
    for name in neuraldbg.__all__:
        assert getattr(neuraldbg, name) is not None
