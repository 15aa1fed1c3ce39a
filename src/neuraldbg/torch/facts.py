"""Static facts: the module tree, parameters and optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import ModuleFact, OptimizerFact, ParamFact, Scalar
from neuraldbg.torch.compile import inside, own_name

# Settings of a module that say something about training.
CONFIG: Final = (
    *("p", "dropout", "eps", "momentum", "affine", "track_running_stats", "normalized_shape"),
    *("in_features", "out_features", "input_size", "hidden_size", "num_features"),
    *("in_channels", "out_channels", "kernel_size", "stride", "groups", "dim"),
    *("num_layers", "bidirectional", "nonlinearity", "negative_slope", "inplace"),
    *("embed_dim", "num_heads", "num_embeddings", "embedding_dim", "sparse"),
)
ROWS: Final = 4_096  # rows of a weight that are compared for symmetry


def config_of(module: nn.Module) -> dict[str, Scalar]:
    """The known settings of a module, as scalars."""
    out: dict[str, Scalar] = {}
    for name in CONFIG:
        value = module.__dict__.get(name)
        if isinstance(value, (int, float, str, bool)):
            out[name] = value
        elif isinstance(value, tuple):
            out[name] = "x".join(map(str, value))
    if isinstance(getattr(module, "bias", None), Tensor):
        out["bias"] = True
    return out


def module_facts(
    model: nn.Module,
    prefix: str,
    order: Mapping[str, int],
    calls: Mapping[str, int],
    unseen: Mapping[str, int],
) -> list[ModuleFact]:
    """One fact for each module of a model.

    Args:
        model: The user's own module.
        prefix: Put before each name, with a dot, when several models are watched.
        order: Rank of the first call by name within the model.
        calls: Calls by name in the first observed step.
        unseen: Calls by name in training mode but without gradient.
    """
    facts = []
    for name, module in model.named_modules():
        if inside(module) is not None:
            continue
        own, quiet = own_name(name), unseen.get(name)
        facts.append(
            ModuleFact(
                name=join(prefix, own),
                kind=type(module).__name__,
                leaf=next(module.children(), None) is None,
                order=order.get(name),
                training=module.training,
                calls=calls.get(name, 0),
                config=config_of(module) | ({"no_grad_calls": quiet} if quiet else {}),
                caller=join(prefix, own.rpartition(".")[0]) if own else None,
            )
        )
    return facts


def join(prefix: str, name: str) -> str:
    """A dotted name under a prefix, either of which may be empty."""
    return f"{prefix}.{name}" if prefix and name else prefix or name


def initial(param: Tensor) -> dict[str, Any]:
    """Statistics of a weight before its first update."""
    value = param.detach()
    value = (torch.view_as_real(value) if value.is_complex() else value).float()
    rms = float(value.square().mean().sqrt()) if value.numel() else 0.0
    return {
        "init_mean": float(value.mean()) if value.numel() else None,
        "init_rms": rms,
        "init_absmax": float(value.abs().max()) if value.numel() else None,
        "row_spread": _row_spread(value, rms),
        "fan_in": param[0].numel() if param.dim() >= 2 and len(param) else None,
    }


def _row_spread(value: Tensor, rms: float) -> float | None:
    """How far apart the rows of a weight are, in units of the weight's own scale."""
    if value.dim() < 2 or value.shape[0] < 2:
        return None
    rows = value[:ROWS].reshape(min(len(value), ROWS), -1)
    spread = float((rows - rows.mean(0)).square().mean().sqrt())
    return spread / rms if rms > 0 else 0.0


def group_settings(group: Mapping[str, object]) -> dict[str, Scalar]:
    """The numeric settings of a parameter group; tuples become `betas.0`, `betas.1`."""
    out: dict[str, Scalar] = {}
    for key, value in group.items():
        if key == "params":
            continue
        if isinstance(value, Tensor) and value.numel() == 1:
            out[key] = float(value)
        elif isinstance(value, (int, float, str, bool)) or value is None:
            out[key] = value
        elif isinstance(value, tuple):
            out |= {f"{key}.{i}": x for i, x in enumerate(value) if isinstance(x, (int, float))}
    return out


def optimizer_fact(index: int, optimizer: Optimizer, known: set[int], steps: int) -> OptimizerFact:
    """What an optimizer is and holds.

    Args:
        index: Its number.
        optimizer: The optimizer.
        known: Ids of the parameters of every trained model.
        steps: Steps taken so far.
    """
    held = [p for group in optimizer.param_groups for p in group["params"]]
    return OptimizerFact(
        index=index,
        kind=type(optimizer).__name__,
        groups=tuple(group_settings(g) for g in optimizer.param_groups),
        params=len(held),
        foreign=sum(id(p) not in known for p in held),
        steps=steps,
    )


def membership(index: int, optimizer: Optimizer) -> Iterator[tuple[Tensor, tuple[int, int]]]:
    """Each parameter that an optimizer holds, with the numbers of optimizer and group."""
    for g, group in enumerate(optimizer.param_groups):
        for param in group["params"]:
            yield param, (index, g)


def param_fact(
    name: str,
    param: Tensor,
    *,
    place: tuple[int, int] | None,
    first: Mapping[str, Any],
    reached: bool | None,
    registered: bool,
) -> ParamFact:
    """One parameter; the arguments are the fields of `ParamFact`."""
    return ParamFact(
        name=name,
        shape=() if torch.nn.parameter.is_lazy(param) else tuple(param.shape),
        dtype=str(param.dtype).removeprefix("torch."),
        requires_grad=param.requires_grad,
        optimizer=place[0] if place else None,
        group=place[1] if place else None,
        reached=reached,
        registered=registered,
        **first,
    )


def autocast() -> dict[str, Scalar]:
    """The type that mixed precision computes in here, as a note of the run."""
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            return {m.N_AUTOCAST: str(torch.get_autocast_dtype(device)).removeprefix("torch.")}
    return {}


def device_of(params: Iterable[Tensor]) -> str:
    """The device that the model sits on."""
    return str(next((p.device for p in params), torch.device("cpu")))
