"""What was seen of the modules of a run, and why not more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from neuraldbg.cli import output, runs

if TYPE_CHECKING:
    from neuraldbg.core.coverage import Cover
    from neuraldbg.core.record import Record

NAMED: Final = 6  # modules named for one reason


def show(run: str, *, as_json: bool) -> int:
    """Print what was seen; exit 1 if a module that trains was never seen.

    Raises:
        RunFileError: There is no such run, or its file cannot be read.
    """
    from neuraldbg.core.coverage import coverage

    _, record = runs.read(run)
    covers = coverage(record)
    if as_json:
        from neuraldbg.report.json import encode

        data = {"modules": [asdict(c) for c in covers], "gaps": record.facts.gaps}
        output.result(encode(data) + "\n")
    else:
        output.result(_text(record, covers))
    return int(any(_matters(record, c) for c in covers if not c.output))


def _matters(record: Record, cover: Cover) -> bool:
    """Whether a module has weights of its own that an optimizer trains."""
    own = (p for p in record.facts.params if p.module == cover.name)
    return any(p.optimizer is not None and p.requires_grad for p in own)


def _text(record: Record, covers: list[Cover]) -> str:
    from neuraldbg.report.page import Page

    run, page = record.facts.run, Page()
    mode = f"compiled ({run.backend or 'backend unknown'})" if run.compiled else "eager"
    page.paragraph(f"{run.id}: {mode}, torch {run.torch}, {run.steps} steps")
    outputs, gradients = (sum(map(bool, x)) for x in ([c.output for c in covers],
                                                      [c.gradient for c in covers]))  # fmt: skip
    page.paragraph(
        f"Of {len(covers)} modules, outputs were read of {outputs} and gradients of {gradients}."
    )
    page.section("What was not seen, and why", _reasons(covers))
    page.section("What could not be seen", (f"{g.what}: {g.why}" for g in record.facts.gaps))
    return page.text()


def _reasons(covers: Iterable[Cover]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for cover in covers:
        if cover.why:
            by_reason[cover.why].append(cover.name or "the model itself")
    for why, names in by_reason.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"{', '.join(names[:NAMED])}{more}: {why}"
