"""Write the reference of interventions from their declarations.

The page `experiments.md` includes what this writes. Run by the documentation build, or by
hand:

    python docs/generate_interventions.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from neuraldbg.experiments.interventions import Intervention, all_interventions

TARGET = Path(__file__).parents[1] / "build" / "generated" / "interventions.md"


def page(declared: Iterable[Intervention]) -> str:
    """The reference in Markdown, a row for each intervention."""
    lines = ["| with | tests | not if | side effects |", "|---|---|---|---|"]
    for i in sorted(declared, key=lambda i: (i.causes, i.size, i.name)):
        causes = ", ".join(f"`{cause}`" for cause in i.causes)
        eager = "; runs without `torch.compile`" if i.eager else ""
        lines.append(f"| {i.changes} | {causes} | {i.unless} | {i.side_effects}{eager} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page, if it has changed."""
    text = page(all_interventions().values())
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
