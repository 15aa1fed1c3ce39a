"""Which parameters belong to the run, under which names, and what the loss reaches."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from neuraldbg.core.facts import OptimizerFact
from neuraldbg.torch import facts
from neuraldbg.torch.discover import hidden_name

if TYPE_CHECKING:
    from neuraldbg.store.writer import RunWriter
    from neuraldbg.torch.roots import Root
    from neuraldbg.torch.updates import ParamSide


class Ownership:
    """Keeps track of parameters by name.

    Args:
        roots: The watched models, a list that grows.
    """

    def __init__(self, roots: list[Root]) -> None:
        self._roots = roots
        self._reached: dict[int, bool] = {}
        self._hidden: dict[int, tuple[str, weakref.ref[Tensor]]] = {}
        self._training: dict[str, bool] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._optimizers: dict[int, OptimizerFact] = {}

    def params(self) -> dict[str, Tensor]:
        """Every watched parameter by the user's name, hidden ones included."""
        out: dict[str, Tensor] = {}
        for root in self._used():
            out |= root.parameters()
        for name, ref in self._hidden.values():
            param = ref()
            if param is not None:
                out.setdefault(name, param)
        return out

    def _used(self) -> list[Root]:
        """The models that training uses; all of them until that is known."""
        return [root for root in self._roots if root.used()] or self._roots

    def meet(self, reached: list[Tensor]) -> None:
        """Note the parameters that a loss reaches; unknown ones get a name."""
        met = {id(p) for p in reached}
        known: set[int] = set()
        for root in self._roots:
            own = {id(p) for p in root.parameters().values()}
            root.reached |= bool(own & met)
            known |= own
        for param in reached:
            self._reached[id(param)] = True
            if id(param) not in known and id(param) not in self._hidden:
                self._hidden[id(param)] = (self._hidden_name(param), weakref.ref(param))

    def _hidden_name(self, param: Tensor) -> str:
        for root in self._roots:
            model = root.ref()
            name = None if model is None else hidden_name(model, param)
            if name is not None:
                return root.full_name(name)
        return f"parameter.{len(self._hidden)}"

    def note_flags(self) -> None:
        """Note the training flags of all modules during a training step."""
        for root in self._roots:
            model = root.ref()
            if model is not None:
                for name, module in model.named_modules():
                    self._training[root.full_name(name)] = module.training

    def write(self, writer: RunWriter, updates: ParamSide) -> None:
        """Write the facts of modules, parameters and optimizers.

        What was freed since (a model or optimizer local to a function that returned) keeps
        the facts that were written while it lived.
        """
        for i, optimizer in updates.alive():
            fact = facts.optimizer_fact(i, optimizer, self._trained(), updates.steps(i))
            self._optimizers[i] = fact
            self._places |= facts.membership({i: optimizer})
        writer.optimizers([self._optimizers[i] for i in sorted(self._optimizers)])
        if all(root.ref() is not None for root in self._used()):
            writer.modules(
                [
                    replace(f, training=self._training.get(f.name, f.training))
                    for root in self._used()
                    for f in root.module_facts()
                ]
            )
            writer.params(self._param_facts(self._places, updates.initial))

    def _param_facts(
        self, places: dict[int, tuple[int, int]], initial: dict[int, Any]
    ) -> list[Any]:
        hidden = {name for name, _ in self._hidden.values()}
        reached: Callable[[Tensor], bool | None] = lambda p: (  # noqa: E731
            self._reached.get(id(p), False) if self._reached else None
        )
        return [
            facts.param_fact(
                name,
                param,
                place=places.get(id(param)),
                first=initial.get(id(param), {}),
                reached=reached(param),
                registered=name not in hidden,
            )
            for name, param in self.params().items()
        ]

    def _trained(self) -> set[int]:
        """Parameters of the models that a loss was seen to reach, or of all models."""
        return {id(p) for root in self._used() for p in root.parameters().values()}
