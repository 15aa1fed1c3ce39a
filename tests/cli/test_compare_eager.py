"""`neuraldbg run --compare-eager`: whether compiling changes what a script computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .programs import RUN, call

LOOP = """
import torch, torch.nn.functional as F
from torch import nn

{before}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(16, 32), Middle(), nn.Linear(32, 4)

    def forward(self, x):
        return self.last(F.gelu(self.middle(self.first(x))))

model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
call = torch.compile(model, backend={backend})
for step in range(12):
    x = torch.randn(64, 16)
    loss = F.cross_entropy(call(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("done")
"""

# An operator of the user's own, and a compiler that replaces it by something else.
WRONG = """
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

torch.library.define("shop::scale", "(Tensor x) -> Tensor")
torch.library.impl("shop::scale", "CompositeExplicitAutograd", lambda x: x * 1.0)
torch.library.register_fake("shop::scale", torch.empty_like)
torch.library.register_autograd("shop::scale", lambda ctx, g: g * 1.0)

class Middle(nn.Module):
    def forward(self, x):
        return torch.ops.shop.scale(x)

def wrong(graph, inputs):
    for node in graph.graph.nodes:
        if node.target is torch.ops.shop.scale.default:
            with graph.graph.inserting_after(node):
                other = graph.graph.call_function(
                    torch.ops.aten.mul.Tensor, (node.args[0], 1.01)
                )
            node.replace_all_uses_with(other)
    graph.recompile()
    return make_boxed_func(graph)

backend = aot_autograd(fw_compiler=wrong, bw_compiler=lambda g, _: make_boxed_func(g))
"""
HEALTHY = "Middle = lambda: nn.Sequential(nn.BatchNorm1d(32), nn.Dropout(0.2))"


def compared(tmp_path: Path, text: str, *options: str) -> dict[str, Any]:
    (tmp_path / "train.py").write_text(text)
    ended = call([*RUN, "--compare-eager", "--json", "d.json", *options, "train.py"], tmp_path)
    assert (ended.code, ended.out) == (0, "done\n"), ended.err
    assert "without compilation first" in ended.notices
    data: dict[str, Any] = json.loads((tmp_path / "d.json").read_text())
    return data


def test_a_compiled_operator_that_is_wrong_is_named(tmp_path: Path) -> None:
    data = compared(tmp_path, LOOP.format(before=WRONG, backend="backend"), "--out", "r.ndbg")
    best = data["hypotheses"][0]
    assert best["cause"] == "compiler_divergence"
    assert (best["where"], best["first_step"]) == (["middle"], 0)
    assert best["confidence"] > 0.8
    diff = call([*RUN[:-1], "diff", "r.eager.ndbg", "r.ndbg"], tmp_path)
    assert diff.code == 1
    assert "in the output of middle" in " ".join(diff.out.split())


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param("inductor", marks=[pytest.mark.slow, pytest.mark.compile]),
    ],
)
def test_a_healthy_script_raises_no_alarm(backend: str, tmp_path: Path) -> None:
    """It seeds nothing, draws random numbers, and has gradients that are mere rounding."""
    data = compared(tmp_path, LOOP.format(before=HEALTHY, backend=f'"{backend}"'))
    assert data["run"]["compiled"]
    assert not [h for h in data["hypotheses"] if h["cause"] == "compiler_divergence"]
    assert data["gaps"] == []


def test_what_cannot_be_compared_is_a_gap(tmp_path: Path) -> None:
    """A script that starts from other weights each time."""
    seeds = "import os\ntorch.manual_seed(os.getpid())\n" + HEALTHY
    data = compared(tmp_path, LOOP.format(before=seeds, backend='"eager"'))
    (gap,) = data["gaps"]
    assert gap["what"] == "the comparison with eager mode"
    assert "they start from different weights" in gap["why"]


@pytest.mark.parametrize(
    ("env", "says"),
    [({"WORLD_SIZE": "2"}, "one rank"), ({"TORCH_COMPILE_DISABLE": "1"}, "nothing to compare")],
)
def test_where_it_makes_no_sense_nothing_is_started(
    env: dict[str, str], says: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('started')")
    ended = call([*RUN, "--compare-eager", "train.py"], tmp_path, env)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.notices
