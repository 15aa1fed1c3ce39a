"""What happens around backward and step."""

from __future__ import annotations

import weakref
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.torch.interventions import Action, Context, action
from neuraldbg.torch.interventions.patching import Operations, replace
from neuraldbg.torch.loss import leaves
from neuraldbg.torch.succession import held

LOOK: Final = 8  # first backward passes whose reach is followed, each
EVERY: Final = 16  # then one of so many, since a script may train something else later
RETIRED: Final = 64  # backward passes without a step; accumulation and critics take fewer


@action("zero_grad")
class ZeroGrad(Action):
    """Forgets gradients after each step."""

    def step_ended(self, optimizer: Optimizer) -> None:
        """Forget them."""
        for p in held(optimizer):
            if p.grad is not None:
                p.grad = None
                self.applied += 1

    def scaler_stepped(self, optimizer: Optimizer) -> None:
        """Forget them also where a loss scaler skipped the step."""
        self.step_ended(optimizer)


@action("step_after_backward")
class StepAfterBackward(Action):
    """Steps every optimizer after each backward pass, then forgets the gradients."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._optimizers: list[weakref.ref[Optimizer]] = []

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Remember it."""
        super().optimizer_made(optimizer)
        self._optimizers.append(weakref.ref(optimizer))

    def backward_ended(self) -> None:
        """Step."""
        for ref in self._optimizers:
            optimizer = ref()
            if optimizer is not None and any(p.grad is not None for p in held(optimizer)):
                optimizer.step()
                self.applied += 1


@action("optimize_all")
class OptimizeAll(Action):
    """Gives the optimizer what the loss reaches and no optimizer at work holds."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._worked: dict[int, tuple[weakref.ref[Optimizer], int]] = {}
        self._reached: dict[int, Tensor] = {}
        self._passes = 0

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Know who holds parameters."""
        super().optimizer_made(optimizer)
        self._works(optimizer)

    def backward_begins(self, tensors: list[Tensor]) -> None:
        """See what the loss reaches."""
        self._passes += 1
        if self._passes > LOOK and self._passes % EVERY:
            return
        for root in (t.grad_fn for t in tensors):
            found = leaves(root) if root is not None else []
            self._reached |= {id(p): p for p in found if p.is_leaf and p.requires_grad}

    def step_begins(self, optimizer: Optimizer) -> None:
        """Adopt the orphans; they join an existing group, which schedulers count."""
        self._works(optimizer)
        known = self._held()
        for key, p in self._reached.items():
            if key not in known and isinstance(p, nn.Parameter):
                optimizer.param_groups[0]["params"].append(p)
                self.applied += 1
        self._reached.clear()

    def _works(self, optimizer: Optimizer) -> None:
        self._worked[id(optimizer)] = weakref.ref(optimizer), self._passes

    def _held(self) -> set[int]:
        """What optimizers hold that are made or stepped of late; one that is kept may be idle."""
        late = [ref() for ref, last in self._worked.values() if self._passes - last <= RETIRED]
        return {id(p) for optimizer in late if optimizer is not None for p in held(optimizer)}


@action("unfreeze")
class Unfreeze(Action):
    """Lets every floating-point parameter train."""

    patient = True

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Thaw the optimizer's models, and hand over what it lacks."""
        super().optimizer_made(optimizer)
        self._thaw()
        own = {id(p) for p in held(optimizer)}
        for model in self._met:
            for p in model.parameters():
                if id(p) not in own and p.is_floating_point():
                    optimizer.param_groups[0]["params"].append(p)

    def step_ended(self, optimizer: Optimizer) -> None:
        """Thaw again what was frozen meanwhile."""
        self._thaw()

    def _thaw(self) -> None:
        for model in self._met:
            for p in model.parameters():
                if not p.requires_grad and p.is_floating_point():
                    p.requires_grad_(True)  # noqa: FBT003
                    self.applied += 1


@action("no_detach")
class NoDetach(Action):
    """Lets gradients through `detach()`."""

    def begin(self) -> None:
        """Replace it in eager code."""

        def detach(func: Any, value: Tensor, *args: Any, **kwargs: Any) -> Any:
            if not (torch.is_grad_enabled() and value.requires_grad and value.numel() > 1):
                return func(value, *args, **kwargs)
            self.applied += 1
            return value.view_as(value)

        data = Tensor.data.__get__  # type: ignore[attr-defined]
        table = {Tensor.detach: detach, torch.detach: detach, data: detach}
        Operations(table).install()


@action("checkpoint_nonreentrant")
class Checkpoint(Action):
    """Makes activation checkpointing keep the path to the parameters."""

    def begin(self) -> None:
        """Change its default and what callers ask for."""
        from torch.utils import checkpoint

        def make(original: Any) -> Any:
            def call(function: Any, *args: Any, **kwargs: Any) -> Any:
                self.applied += 1
                return original(function, *args, **{**kwargs, "use_reentrant": False})

            return call

        replace(checkpoint, "checkpoint", make)


@action("negate_loss")
class Negate(Action):
    """Turns the sign of gradients for the time of a step."""

    def step_begins(self, optimizer: Optimizer) -> None:
        """Turn them."""
        self._turn(optimizer)
        self.applied += 1

    def step_ended(self, optimizer: Optimizer) -> None:
        """Turn them back, for loops that go on adding to them."""
        self._turn(optimizer)

    def _turn(self, optimizer: Optimizer) -> None:
        for p in held(optimizer):
            if p.grad is not None:
                p.grad.neg_()


class _Mode(Action):
    """Sets the mode of a model at the start of passes, and restores it at their end."""

    training = True

    def model(self, model: nn.Module) -> None:
        """Hook the outermost module."""
        before: list[dict[nn.Module, bool]] = []

        def enter(module: nn.Module, args: Any) -> None:
            before.append({})
            if torch.is_grad_enabled() is not self.training:
                return
            wrong = [x for x in module.modules() if x.training is not self.training]
            before[-1] = {x: x.training for x in wrong}
            for x in wrong:
                x.training = self.training
                self.applied += 1

        def leave(*_: Any) -> None:
            for module, mode in before.pop().items():
                module.training = mode

        model.register_forward_pre_hook(enter)
        model.register_forward_hook(leave, always_call=True)


@action("train_mode")
class TrainMode(_Mode):
    """Passes with gradients in training mode."""


@action("eval_mode")
class EvalMode(_Mode):
    """Passes without gradients in evaluation mode."""

    training = False
