"""NeuralDBG: a causal debugger for PyTorch training.

>>> with NeuralDbg(model, optimizer) as dbg:  # doctest: +SKIP
...     train()
>>> print(dbg.diagnosis())  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuraldbg.core.diagnosis import CausalHypothesis, Coupling, Diagnosis, Evidence
    from neuraldbg.core.events import (
        ActivationHealth,
        EventType,
        GradientHealth,
        LossHealth,
        SemanticEvent,
        UpdateHealth,
    )
    from neuraldbg.errors import (
        MissingExtraError,
        NeuralDbgError,
        ObservationWarning,
        RunFileError,
        UsageError,
    )
    from neuraldbg.run import Run, explain, load
    from neuraldbg.torch.monitor import NeuralDbg

__version__ = "0.1.0"

# Imported on first use, so that `import neuraldbg` is quick and needs no torch.
_HOMES = {
    "ActivationHealth": "core.events",
    "CausalHypothesis": "core.diagnosis",
    "Coupling": "core.diagnosis",
    "Diagnosis": "core.diagnosis",
    "EventType": "core.events",
    "Evidence": "core.diagnosis",
    "GradientHealth": "core.events",
    "LossHealth": "core.events",
    "MissingExtraError": "errors",
    "NeuralDbg": "torch.monitor",
    "NeuralDbgError": "errors",
    "ObservationWarning": "errors",
    "Run": "run",
    "RunFileError": "errors",
    "SemanticEvent": "core.events",
    "UpdateHealth": "core.events",
    "UsageError": "errors",
    "explain": "run",
    "load": "run",
    "load_ipython_extension": "magics",
}

__all__ = [
    "ActivationHealth",
    "CausalHypothesis",
    "Coupling",
    "Diagnosis",
    "EventType",
    "Evidence",
    "GradientHealth",
    "LossHealth",
    "MissingExtraError",
    "NeuralDbg",
    "NeuralDbgError",
    "ObservationWarning",
    "Run",
    "RunFileError",
    "SemanticEvent",
    "UpdateHealth",
    "UsageError",
    "__version__",
    "explain",
    "load",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    home = _HOMES.get(name)
    if home is None:
        msg = f"module 'neuraldbg' has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        return getattr(importlib.import_module(f"neuraldbg.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from neuraldbg.errors import MissingExtraError

        msg = f"neuraldbg.{name} needs PyTorch: pip install 'neuraldbg[torch]'"
        raise MissingExtraError(msg) from error


def __dir__() -> list[str]:
    return __all__
