"""What a command line may give away, and what is kept of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.core.privacy import redact

SECRET = "Xq7wPz9LkT3vBn5R"  # noqa: S105 - not one


@pytest.mark.parametrize(
    "words",
    [
        ["--token", SECRET],
        [f"--hub-token={SECRET}"],
        ["--api_key", SECRET],
        [f"wandb.api_key={SECRET}"],
        [f"PASSWORD={SECRET}"],
        ["-password", SECRET],
        [f"--url=s3://me:{SECRET}@host/bucket"],
        [f"postgres://me:{SECRET}@host/db"],
        [f"hf_{SECRET}"],
        ["--key", f"sk-{SECRET}"],
        [f"--header=Bearer ghp_{SECRET}"],
        ["--aws-access-key-id", SECRET],
    ],
)
def test_a_secret_is_masked(words: list[str]) -> None:
    shown = redact(["train.py", *words, "--lr", "0.1"])
    assert SECRET not in " ".join(shown)
    assert "***" in " ".join(shown)
    assert shown[0] == "train.py"
    assert shown[-2:] == ["--lr", "0.1"]


@pytest.mark.parametrize(
    "words", [["--tokenizer-free", "--lr"], ["lr=0.1"], ["--data", "a@b"], ["data/tokens.bin"]]
)
def test_what_is_no_secret_stays(words: list[str]) -> None:
    assert redact(words) == words


def test_the_home_directory_has_no_name() -> None:
    assert redact([str(Path.home() / "x.py"), str(Path.home())]) == ["~/x.py", "~"]


@given(st.lists(st.text(max_size=20), max_size=6))
def test_masking_twice_changes_nothing(words: list[str]) -> None:
    once = redact(words)
    assert redact(once) == once
    assert len(once) == len(words)
