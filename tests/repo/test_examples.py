"""The examples run, and the documentation made from code covers it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from neuraldbg.core.causes import all_causes
from neuraldbg.experiments.interventions import all_interventions

ROOT = Path(__file__).parents[2]


def test_the_context_manager_finds_the_forgotten_call(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "context_manager.py")],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "NEURALDBG_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    assert "[missing_zero_grad]" in ended.stdout
    assert list(tmp_path.glob("*.ndbg"))


def test_every_cause_has_its_place_in_the_documentation() -> None:
    spec = importlib.util.spec_from_file_location("page", ROOT / "docs" / "generate_causes.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    text = generator.page(all_causes().values())
    for name, cause in all_causes().items():
        assert f"\n### `{name}`\n" in text
        assert generator.plain(cause.repair) in text


def test_every_intervention_has_its_place_in_the_documentation() -> None:
    path = ROOT / "docs" / "generate_interventions.py"
    spec = importlib.util.spec_from_file_location("interventions_page", path)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    declared = all_interventions()
    text = generator.page(declared.values())
    assert all(i.changes in text and i.side_effects in text for i in declared.values())
