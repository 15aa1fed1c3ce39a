"""For test suites: assertions on a diagnosis, and faults for your own model.

>>> from neuraldbg.testing import assert_explains, inject  # doctest: +SKIP
>>> with inject.scaled_lr(optimizer, 1000), NeuralDbg(model, optimizer) as dbg:  # doctest: +SKIP
...     train(model, optimizer)
>>> assert_explains(dbg.diagnosis(), "lr_too_high")  # doctest: +SKIP

`neuraldbg.testing.programs`, `.faults` and `.variations` generate the labelled runs that
NeuralDBG's own diagnoses are measured on (`bench/quality.py`).
"""

from neuraldbg.testing.assertions import assert_explains, assert_healthy

__all__ = ["assert_explains", "assert_healthy", "inject"]
