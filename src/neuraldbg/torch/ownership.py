"""Which parameters belong to the run, under which names, and what the loss reaches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from torch import Tensor, nn

from neuraldbg.core.facts import ModuleFact, OptimizerFact, ParamFact
from neuraldbg.torch import facts
from neuraldbg.torch.discover import hidden_name, owners
from neuraldbg.torch.identity import ByTensor

FLAG_LOOKS: Final = 3
SELDOM: Final = 10

if TYPE_CHECKING:
    from neuraldbg.store.writer import RunWriter
    from neuraldbg.torch.roots import Root
    from neuraldbg.torch.updates import ParamSide


class Ownership:
    """Keeps track of parameters by name.

    What was freed since (a model or optimizer local to a function that has returned) keeps
    the facts that were written while it lived.

    Args:
        roots: The watched models, a list that grows.
        orphans: Whether parameters that no module owns belong to the run, too.
    """

    def __init__(self, roots: list[Root], *, orphans: bool) -> None:
        self._roots = roots
        self._orphans = orphans
        self._reached: ByTensor[bool] = ByTensor()
        self._hidden: ByTensor[str] = ByTensor()
        self._others: ByTensor[bool] = ByTensor()
        self._training: dict[str, bool] = {}
        self._places: ByTensor[tuple[int, int]] = ByTensor()
        self._optimizers: dict[int, OptimizerFact] = {}
        self._modules: dict[Root, list[ModuleFact]] = {}
        self._params: dict[Root | None, list[ParamFact]] = {}

    def params(self) -> dict[str, Tensor]:
        """Every watched parameter by the user's name, hidden ones included."""
        out: dict[str, Tensor] = {}
        for root in self._used():
            out |= root.parameters()
        for param, name in self._hidden.items():
            out.setdefault(name, param)
        return out

    def _used(self) -> list[Root]:
        """The models that training uses; all of them until that is known."""
        return [root for root in self._roots if root.used()] or self._roots

    def meet(self, reached: list[Tensor]) -> None:
        """Note the parameters that a loss reaches; hidden ones get a name."""
        met = {id(p) for p in reached}
        known: set[int] = set()
        for root in self._roots:
            own = {id(p) for p in root.parameters().values()}
            root.reached |= bool(own & met)
            known |= own
        for param in reached:
            self._reached.put(param, value=True)
            if isinstance(param, nn.Parameter) and id(param) not in known:
                self._name(param)

    def _name(self, param: Tensor) -> None:
        if param in self._hidden or param in self._others:
            return
        name = self.hidden_name(param)
        if name is None and self._orphans and not owners([param]):
            name = f"parameter.{len(self._hidden.items())}"
        if name is None:
            self._others.put(param, value=True)
        else:
            self._hidden.put(param, name)

    def adopt(self, index: int, params: list[Tensor]) -> None:
        """Name the plain tensors that an optimizer trains, which no module has for parameters."""
        known = {id(p) for root in self._roots for p in root.parameters().values()}
        for i, param in enumerate(params if self._orphans else ()):
            if not isinstance(param, nn.Parameter) and id(param) not in known:
                self._hidden.put(param, f"optimizer.{index}.{i}")

    def hidden_name(self, param: Tensor) -> str | None:
        """The name of a parameter that a watched model keeps where it does not register."""
        for root in self._roots:
            model = root.ref()
            name = None if model is None else hidden_name(model, param)
            if name is not None:
                return root.full_name(name)
        return None

    def note_flags(self, looks: int) -> None:
        """Note the training flags of all modules during a training step.

        Args:
            looks: Looks so far; flags are noted in the first ones, and then seldom.
        """
        if looks >= FLAG_LOOKS and looks % SELDOM:
            return
        for root in self._roots:
            model = root.ref()
            if model is not None:
                for name, module in model.named_modules():
                    self._training[root.full_name(name)] = module.training

    @property
    def unwritten(self) -> bool:
        """Whether training uses a model whose facts were never written; it may soon be gone."""
        fresh = (root for root in self._roots if root not in self._modules)
        return any(root.used() and root.ref() is not None for root in fresh)

    def write(self, writer: RunWriter, updates: ParamSide) -> None:
        """Write the facts of modules, parameters and optimizers."""
        self._read_optimizers(updates)
        writer.optimizers([self._optimizers[i] for i in sorted(self._optimizers)])
        for root in self._used():
            if root.ref() is not None:
                self._modules[root] = root.module_facts()
                self._params[root] = self._facts(root.parameters(), updates, registered=True)
        hidden = {name: param for param, name in self._hidden.items()}
        if hidden:
            self._params[None] = self._facts(hidden, updates, registered=False)
        writer.modules(
            [
                replace(fact, training=self._training.get(fact.name, fact.training))
                for root in self._used()
                for fact in self._modules.get(root, ())
            ]
        )
        places = (*self._used(), None)
        writer.params([fact for place in places for fact in self._params.get(place, ())])

    def _read_optimizers(self, updates: ParamSide) -> None:
        trained = {id(p) for root in self._used() for p in root.parameters().values()}
        # Where two hold the same parameter, the one that stepped first counts.
        for i, optimizer in reversed(updates.alive()):
            fact = facts.optimizer_fact(i, optimizer, trained, updates.steps(i))
            self._optimizers[i] = fact
            for param, place in facts.membership(i, optimizer):
                self._places.put(param, place)
        for i, fact in self._optimizers.items():
            self._optimizers[i] = replace(fact, steps=updates.steps(i))

    def _facts(
        self, params: dict[str, Tensor], updates: ParamSide, *, registered: bool
    ) -> list[ParamFact]:
        return [
            facts.param_fact(
                name,
                param,
                place=self._places.get(param),
                first=updates.initial.get(param) or {},
                reached=bool(self._reached.get(param)) if self._reached else None,
                registered=registered,
            )
            for name, param in params.items()
        ]
