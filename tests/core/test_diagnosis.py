"""The answer."""

from __future__ import annotations

import json

from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis
from neuraldbg.core.engine import diagnose
from neuraldbg.core.facts import Facts, RunFact

from .records import classifier, healthy_record

FACTS = Facts(RunFact(id="r"))


def test_its_short_form_fits_a_line() -> None:
    assert repr(Diagnosis(FACTS, "healthy")) == "Diagnosis(healthy, 0 events)"
    found = Diagnosis(FACTS, "failed", (CausalHypothesis("lr_too_high", 0.934),))
    assert repr(found) == "Diagnosis(failed, lr_too_high 0.93, 0 events)"


def test_it_presents_itself_as_text_json_and_html() -> None:
    found = diagnose(classifier().of_optimizer("0", grad_carried=2.0).build())
    assert "zero_grad" in str(found)
    assert json.loads(found.to_json())["hypotheses"][0]["cause"] == "missing_zero_grad"
    assert "zero_grad" in found._repr_html_()


def test_a_healthy_run_presents_itself_too() -> None:
    found = diagnose(healthy_record())
    assert "HEALTHY" in str(found).upper()
    assert json.loads(found.to_json())["verdict"] == "healthy"
    assert found._repr_html_()
