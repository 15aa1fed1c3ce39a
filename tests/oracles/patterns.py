"""Models and loops of every kind that users write, each small enough to train in a moment."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parametrizations
from torch.optim import SGD, Optimizer
from torch.utils.checkpoint import checkpoint

from .models import Attention, Recurrent, Saved, Twice, floats, loss_of, mlp, tokens

Call = Callable[..., Any]
Step = Callable[[Call, nn.Module, Tensor, list[Optimizer]], Tensor]
PATTERNS: dict[str, Pattern] = {}


def plain_step(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    for opt in opts:
        opt.zero_grad()
    loss = loss_of(call(batch))
    loss.backward()
    for opt in opts:
        opt.step()
    return loss.detach()


def one_sgd(model: nn.Module) -> list[Optimizer]:
    return [SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)]


def in_one_piece(model: nn.Module, **options: Any) -> Call:
    return torch.compile(model, fullgraph=True, **options)


def in_pieces(model: nn.Module, **options: Any) -> Call:
    return torch.compile(model, **options)


def children(model: nn.Module, **options: Any) -> Call:
    """Each child on its own; the model is what holds them."""
    for child in model.children():
        child.compile(fullgraph=True, **options)
    return model


@dataclass(frozen=True)
class Pattern:
    """A model and a loop around it.

    Attributes:
        make: Builds the model.
        step: One training step; returns the loss.
        batch: Draws a batch.
        optimizers: Makes them.
        compile: How such a model is compiled; takes what `torch.compile` takes.
        gaps: What a report must say was not observed.
    compiled_gaps: The same, only where it is compiled.
        unseen: Modules that a gap speaks of, or that the oracle alone can look into.
        rounding: How far readings may be from those of the oracle in low precision.
    """

    make: Callable[[], nn.Module]
    step: Step = plain_step
    batch: Callable[[], Tensor] = floats
    optimizers: Callable[[nn.Module], list[Optimizer]] = one_sgd
    compile: Callable[..., Call] = in_one_piece
    leader: int = 0
    between: Callable[[nn.Module, Tensor], None] = lambda model, batch: None
    skipped: bool = False
    gaps: tuple[str, ...] = ()
    compiled_gaps: tuple[str, ...] = ()
    unseen: frozenset[str] = field(default_factory=frozenset)
    rounding: float = 0.0


def pattern(name: str, make: Callable[[], nn.Module], **more: Any) -> None:
    PATTERNS[name] = Pattern(make, **more)


def looped(name: str, make: Callable[[], nn.Module], **more: Any) -> Callable[[Step], Step]:
    """Register a pattern whose step is the decorated function."""

    def register(step: Step) -> Step:
        pattern(name, make, step=step, **more)
        return step

    return register


# -- models ----------------------------------------------------------------------------


class Gru(Recurrent):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(6, 8, batch_first=True, num_layers=2)


class Sdpa(nn.Module):
    """Attention by the function alone."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(11, 8), nn.Linear(8, 24), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        q, k, v = self.qkv(self.embed(ids)).chunk(3, -1)
        return self.head(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class Encoder(nn.Module):
    """PyTorch's own transformer layer, which has a fast path in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(self.embed(ids))


class Breaks(nn.Module):
    """Asks its data which way to go, so that no compiler makes one graph of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.warm, self.cold = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).tanh()
        return self.warm(x) + self.cold(x) if x.sum().item() > -1e9 else self.cold(x)


class Normed(nn.Module):
    """Weights that are computed from others."""

    def __init__(self) -> None:
        super().__init__()
        self.first = parametrizations.weight_norm(nn.Linear(6, 8))
        self.second = parametrizations.spectral_norm(nn.Linear(8, 8))
        self.third = parametrizations.orthogonal(nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(self.first(x).relu()))


class Views(nn.Module):
    """Changes a view of what a module returned, as some attention code does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x[:, 0] = 0.0
        x[:, 1:3].mul_(2.0)
        return self.second(x)


class Part(nn.Module):
    """Returns a view of what it computed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)[:, :4]


class ViewsOfViews(nn.Module):
    """A module returns a view, which the next one changes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.act, self.head = Part(), nn.ReLU(inplace=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.part(x)))


class Sometimes(nn.Module):
    """Uses one of two modules by turns, and has one that it never uses."""

    def __init__(self) -> None:
        super().__init__()
        self.even, self.odd, self.never = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(6, 4)
        self.turn = 0

    def forward(self, x: Tensor) -> Tensor:
        return (self.odd if self.turn % 2 else self.even)(x)


class Shared(nn.Module):
    """One module under two names, and one weight in two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.again = self.first
        self.other = nn.Linear(6, 6)
        self.other.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.again(self.first(x)))


class Frozen(nn.Module):
    """A backbone that is not trained, called with gradient switched off."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.frozen = nn.Linear(8, 8).requires_grad_(requires_grad=False)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.backbone(x)
        return self.head(self.frozen(x))


class Many(nn.Module):
    """Keyword arguments and several inputs and outputs, of which one is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.Inner()
        self.head = nn.Linear(8, 2)

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(6, 8), nn.Linear(6, 8)

        def forward(self, x: Tensor, *, scale: float) -> dict[str, Any]:
            return {"both": (self.left(x).relu_(), scale * self.right(x)), "none": None}

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.inner(x, scale=0.5)["both"]
        return self.head(left + right)


class Pair(nn.Module):
    """Two models that are trained together and never called as one."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second


class Small(nn.Module):
    def __init__(self, inputs: int = 6, outputs: int = 2) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def user_hooks() -> nn.Module:
    """Hooks of the user's own that change what flows, forward and backward."""
    model = Small()
    model.body[0].register_forward_hook(lambda _, args, out: 2 * out)
    model.body[0].register_forward_pre_hook(lambda _, args: (args[0] + 1,))
    return model


def in_bfloat16() -> nn.Module:
    return mlp().to(torch.bfloat16)


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LazyLinear(8), nn.LazyLinear(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def lazy() -> nn.Module:
    model = Lazy()
    model(floats())
    return model


BY_PIECES = {"compile": in_pieces}
NEVER = "never called in a watched training step"

pattern("gru", Gru, batch=tokens, skipped=True, **BY_PIECES)
pattern("lstm", Recurrent, batch=tokens, skipped=True, **BY_PIECES)
pattern("scaled dot product attention", Sdpa, batch=tokens)
pattern("transformer layer", Encoder, batch=tokens)
pattern("graph breaks", Breaks, **BY_PIECES)
pattern("parametrizations", Normed, gaps=("they compute a weight",), **BY_PIECES)
pattern("views changed in place", Views)
pattern(
    "views returned and changed in place",
    ViewsOfViews,
    compiled_gaps=("no gradient came back",),
)
pattern("shared modules and weights", Shared)
pattern("frozen parts", Frozen, gaps=(NEVER,), unseen=frozenset({"backbone.0", "backbone.1"}))
pattern("nested outputs", Many)
pattern("hooks of the user", user_hooks)
pattern("lazy modules", lazy)
pattern("bfloat16", in_bfloat16, batch=lambda: floats().bfloat16(), rounding=0.02)


# -- loops -----------------------------------------------------------------------------


@looped("modules called by turns", Sometimes, gaps=(NEVER,))
def by_turns(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    loss = plain_step(call, model, batch, opts)
    model.turn += 1
    return loss


def sparse(model: nn.Module) -> list[Optimizer]:
    dense = [p for n, p in model.named_parameters() if n != "embed.weight"]
    return [torch.optim.SparseAdam([model.embed.weight]), SGD(dense, lr=0.1)]


def sparse_model() -> nn.Module:
    model = Recurrent()
    model.embed = nn.Embedding(11, 6, sparse=True)
    return model


pattern(
    "sparse gradients", sparse_model, batch=tokens, optimizers=sparse, skipped=True, **BY_PIECES
)


def two_adams(model: nn.Module) -> list[Optimizer]:
    return [torch.optim.Adam(part.parameters(), lr=0.01) for part in model.children()]


@looped("gan", lambda: Pair(Small(), Small(2, 1)), optimizers=two_adams, compile=children,
        leader=1, gaps=(NEVER,))  # fmt: skip
def gan(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    make, judge = model.first, model.second
    opts[1].zero_grad()
    fake = make(batch)
    loss = F.softplus(-judge(batch[:, :2])).mean() + F.softplus(judge(fake.detach())).mean()
    loss.backward()
    opts[1].step()
    opts[0].zero_grad()
    F.softplus(-judge(fake)).mean().backward()
    opts[0].step()
    return loss.detach()


@looped("siamese", Small)
def siamese(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    opts[0].zero_grad()
    loss = (call(batch) - call(batch.flip(0))).square().mean()
    loss.backward()
    opts[0].step()
    return loss.detach()


@looped("teacher and student", lambda: Pair(Small(), Small()), compile=children, gaps=(NEVER,),
        unseen=frozenset({"second", *(f"second.body.{i}" for i in range(3))}),
        optimizers=lambda model: one_sgd(model.first))  # fmt: skip
def teacher(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    opts[0].zero_grad()
    with torch.no_grad():
        wanted = model.second(batch)
    loss = F.mse_loss(model.first(batch), wanted)
    loss.backward()
    opts[0].step()
    return loss.detach()


# Double backward is beyond AOTAutograd: PyTorch itself refuses it.
@looped(
    "gradient penalty",
    lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)),
    skipped=True,
)
def penalty(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    opts[0].zero_grad()
    x = batch.clone().requires_grad_()
    out = model(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    loss = loss_of(out) + (slope.norm(dim=1) - 1).square().mean()
    loss.backward()
    opts[0].step()
    return loss.detach()


@looped("lbfgs", Small,
        optimizers=lambda m: [torch.optim.LBFGS(m.parameters(), max_iter=3)])  # fmt: skip
def lbfgs(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    def closure() -> Tensor:
        opts[0].zero_grad()
        loss = loss_of(call(batch))
        loss.backward()
        return loss

    return opts[0].step(closure).detach()


@looped("a layer replaced while training", Small)
def replaced(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    loss = plain_step(call, model, batch, opts)
    if len(opts) == 1 and opts[0].param_groups[0]["lr"] == 0.05:
        opts[0].param_groups[0]["lr"] = 0.02
        model.body[2].weight = nn.Parameter(torch.zeros(2, 8))
        opts[0].add_param_group({"params": [model.body[2].weight]})
    return loss


def copied(model: nn.Module, batch: Tensor) -> None:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    torch.load(buffer, weights_only=False)(batch).sum().backward()
    copy.deepcopy(model)(batch).sum().backward()
    model.load_state_dict(model.state_dict())


def functorch(model: nn.Module, batch: Tensor) -> None:
    params = {n: p.detach() for n, p in model.named_parameters()}

    def loss(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return loss_of(functional_call(model, params, (x.unsqueeze(0),)))

    vmap(grad(loss), in_dims=(None, 0))(params, batch)


def exported(model: nn.Module, batch: Tensor) -> None:
    torch.export.export(model, (batch,))
    torch.fx.symbolic_trace(model)(batch)


pattern("copies, pickles and state", Small, between=copied)
pattern("functorch over the model", Small, between=functorch)
pattern("exported and traced", Small, between=exported)


@looped("evaluation between steps", Small)
def evaluated(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            call(100 * batch)
            model.eval()
            call(100 * batch)
            model.train()
    return plain_step(call, model, batch, opts)


@looped("autocast to bfloat16", mlp, rounding=0.02)
def autocast(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    opts[0].zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(call(batch).float())
    loss.backward()
    opts[0].step()
    return loss.detach()


@looped("autocast to float16", mlp, rounding=0.01)
def half(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    opts[0].zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = loss_of(call(batch).float())
    scaler.scale(loss).backward()
    scaler.step(opts[0])
    return loss.detach()


@looped("checkpoint around the model", Twice)
def around(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    return plain_step(lambda x: checkpoint(call, x, use_reentrant=False), model, batch, opts)


@looped("a part called by itself", Saved)
def by_itself(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    opts[0].zero_grad()
    loss = loss_of(call(batch)) + loss_of(model.blocks[0](batch))
    loss.backward()
    opts[0].step()
    return loss.detach()


@looped("weights tied to the embedding", Attention, batch=tokens)
def tied(call: Call, model: nn.Module, batch: Tensor, opts: list[Optimizer]) -> Tensor:
    return plain_step(call, model, batch, opts)
