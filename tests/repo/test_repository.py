"""What must hold of the repository as a whole."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import neuraldbg

ROOT = Path(__file__).parents[2]
PACKAGE = Path(neuraldbg.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 400
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_source_file_stays_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{path.name} has {lines} lines: split it along its ideas"


def test_the_version_is_the_same_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert PROJECT["version"] == neuraldbg.__version__
    assert f"## [{neuraldbg.__version__}]" in changelog
    assert "## [Unreleased]" in changelog


def test_every_dependency_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {name_of(line) for line in lines if re.fullmatch(r"[\w.-]+==[\w.]+", line)}
    assert len(pins) == sum(1 for line in lines if line and not line.startswith("#"))
    wanted = {name_of(need) for group in EXTRAS.values() for need in group}
    wanted |= {name_of(need) for need in PROJECT["dependencies"]}
    assert wanted - {"neuraldbg"} <= pins


def test_torch_is_optional() -> None:
    assert "torch" not in {name_of(need) for need in PROJECT["dependencies"]}
    assert "torch" in {name_of(need) for need in EXTRAS["torch"]}


def test_types_are_published() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_the_readme_starts_with_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    first = re.search(r"```\w*\n(.*?)```", readme, flags=re.DOTALL)
    assert first is not None
    commands = [line.split("#")[0].strip() for line in first[1].splitlines()]
    assert commands == ["make demo", "make test"]
    for command in commands:
        assert re.search(rf"^{command.split()[1]}:", makefile, flags=re.MULTILINE)


def test_the_lock_holds_the_versions_that_are_tested_with_hashes() -> None:
    lock = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:", lock, flags=re.MULTILINE))
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    wanted = dict(re.findall(r"^([\w.-]+)==(\S+)$", pins, flags=re.MULTILINE))
    wanted.pop("torch")  # which build of it fits depends on the machine
    assert {name_of(k): v for k, v in locked.items()} == {name_of(k): v for k, v in wanted.items()}
    assert "://" not in lock


def test_the_pipeline_has_the_least_rights_and_fixed_actions() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert re.search(r"^permissions: \{\}$", text, flags=re.MULTILINE)
    assert set(re.findall(r"(\S+): write", text)) == {"security-events"}
    uses = re.findall(r"uses: (\S+)", text)
    assert uses
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", use) for use in uses)
