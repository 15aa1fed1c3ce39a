"""The models under watch, and what to call them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from neuraldbg.core import metrics as m
from neuraldbg.torch.compile import is_compiled, rearm, unwrap
from neuraldbg.torch.discover import variable_name
from neuraldbg.torch.guard import Faults
from neuraldbg.torch.roots import Root


class Models:
    """Puts models under watch and names them.

    Args:
        faults: Receives our own errors.
        on_input, on_prediction: See `Hooks`.

    Attributes:
        roots: The watched models.
    """

    def __init__(
        self,
        faults: Faults,
        on_input: Callable[[int, Tensor], None],
        on_prediction: Callable[[Tensor], None],
    ) -> None:
        self.roots: list[Root] = []
        self._faults = faults
        self._on_input = on_input
        self._on_prediction = on_prediction

    def add(self, model: nn.Module) -> None:
        """Put a model under watch; one that is already watched is left alone."""
        compiled = is_compiled(model)
        model = unwrap(model)
        self._bury()
        for known in self.roots:
            watched = known.ref()
            if watched is not None and any(x is model for x in watched.modules()):
                known.compiled |= compiled
                return
        compiled |= self._absorb(model)
        name = self._free_name(model)
        root = Root(model, name, self._faults, self._on_input, self._on_prediction)
        root.compiled = compiled or is_compiled(model)
        rearm(model)
        self.roots.append(root)

    def _bury(self) -> None:
        """Let go of models that the script has dropped; what was seen of them stays."""
        gone = [root for root in self.roots if root.ref() is None]
        for root in gone:
            root.close()
            if not root.used():
                self.roots.remove(root)

    def _absorb(self, model: nn.Module) -> bool:
        """Let go of parts of a model that were watched alone; whether one is compiled."""
        parts = set(model.modules())
        inner = [root for root in self.roots if root.ref() in parts]
        for root in inner:
            root.close()
            self.roots.remove(root)
        return any(root.compiled for root in inner)

    def _free_name(self, model: nn.Module) -> str:
        """The name that the script gave a model, else that of its class; each once."""
        name = variable_name(model) or type(model).__name__
        taken = {root.prefix for root in self.roots}
        more = (f"{name}_{i}" for i in range(2, len(taken) + 3))
        return next(x for x in (name, *more) if x not in taken)

    def compiling(self, target: object) -> bool:
        """Note what is about to be compiled; whether it is or has a part of a watched model."""
        target = getattr(target, "__self__", target)
        if not isinstance(target, nn.Module):
            return False
        parts = set(target.modules())
        touched = [root for root in self.roots if not parts.isdisjoint(root.modules())]
        for root in touched:
            root.compiled = True
        return bool(touched)

    def settle_names(self, is_trained: Callable[[Root], bool], *, last: bool = False) -> None:
        """Give used models their final names: a prefix only where there are several.

        Args:
            is_trained: Whether a model that was not used yet is going to be trained.
            last: Whether the run is over, so that none can be used any more.
        """
        used = [root for root in self.roots if root.used()] or (self.roots if last else [])
        if all(root.named for root in used):
            return
        several = sum(root in used or is_trained(root) for root in self.roots) > 1
        for root in used:
            model = root.ref()
            if not root.named and model is not None:
                root.prefix = ""
                root.settle_name(self._free_name(model) if several else "")

    def take_seconds(self) -> float:
        """The time that taps took since the last call."""
        spent = sum(root.hooks.seconds for root in self.roots)
        for root in self.roots:
            root.hooks.seconds = 0.0
        return spent

    def evaluations(self) -> dict[str, int]:
        """Passes without gradient, in training mode and in all, as notes of the run."""
        counts = [root.hooks.evaluations for root in self.roots]
        return {
            m.N_EVAL_TRAIN_MODE: sum(count[True] for count in counts),
            m.N_EVAL_AGAIN: sum(root.hooks.again.count for root in self.roots),
            m.N_EVAL_FORWARDS: sum(count[True] + count[False] for count in counts),
        }

    def take_asked(self) -> Tensor | None:
        """What the first evaluation of a model since the last call was given."""
        found = [root.hooks.take_asked() for root in self.roots]
        return next((x for x in found if x is not None), None)

    def discard(self) -> None:
        """Drop what taps collected outside a due step."""
        for root in self.roots:
            root.discard()

    def close(self) -> None:
        """Remove every hook."""
        for root in self.roots:
            root.close()
