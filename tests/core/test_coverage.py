"""Which modules were seen, and why not the others."""

from __future__ import annotations

from dataclasses import replace

from neuraldbg.core.coverage import coverage

from .records import classifier


def test_every_module_has_its_reason() -> None:
    draft = (
        classifier()
        .module("box", "Sequential", leaf=False)
        .module("fc9.parametrizations.weight.0", "Norm", leaf=False, calls=0)
        .module("spare", "Linear", leaf=False, calls=0)
        .module("teacher", "Linear", leaf=False, calls=0, no_grad_calls=5)
        .module("pick", "ArgMax", leaf=False)
    )
    record = draft.build()
    cut = {
        c: s
        for c, s in record.channels.items()
        if c.name != "fc2" or not c.metric.startswith("grad")
    }
    why = {c.name: c.why for c in coverage(replace(record, channels=cut))}
    assert why["fc1"] == ""
    assert why["fc2"] == "no gradient came back to its output"
    assert "container" in why["box"]
    assert "computes a weight" in why["fc9.parametrizations.weight.0"]
    assert "never called" in why["spare"]
    assert "5 times" in why["teacher"]
    assert "no real numbers" in why["pick"]
    assert {c.complete for c in coverage(record) if not c.why} == {True}
