"""What is changed in the model, the loss and the batches, against the plain formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

LABELS = torch.tensor([0, 1, 2, 1])


def known(model: nn.Module) -> None:
    """Make the model known, as a script does."""
    torch.optim.SGD(model.parameters(), lr=0.1)


def test_symmetric_layers_are_drawn_anew_without_moving_other_draws(act) -> None:
    act("default_init")
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    for p in model.parameters():
        nn.init.ones_(p)
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    known(model)
    assert torch.equal(torch.rand(1), wanted)
    assert float(model[0].weight.detach().std(0).min()) > 0
    # The bound of the default: 1 / sqrt(fan-in).
    assert float(model[0].weight.detach().abs().max()) <= 1 / math.sqrt(4)


def test_weights_are_rescaled_to_unit_gain(act) -> None:
    act("unit_gain_init")
    model = nn.Linear(100, 50)
    nn.init.normal_(model.weight, std=3.0)
    known(model)
    assert float(model.weight.detach().std()) == pytest.approx(0.1, rel=1e-4)


def test_biases_are_zeroed(act) -> None:
    action = act("zero_biases")
    model = nn.Linear(3, 3)
    nn.init.constant_(model.bias, -6)
    known(model)
    assert action.applied == 1
    assert not model.bias.detach().any()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["insert_relu", "normalise_layers"])
def test_hidden_layers_are_changed_also_when_compiled(name: str, compiled: bool, act) -> None:
    act(name, layers=["0", "1"])
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    x = torch.randn(5, 4)
    hidden = model[0](x)
    change = {
        "insert_relu": functional.relu,
        "normalise_layers": lambda v: functional.layer_norm(v, v.shape[-1:]),
    }
    wanted = model[1](change[name](hidden))
    run = torch.compile(model, backend="aot_eager") if compiled else model
    known(model)
    assert torch.allclose(run(x), wanted, atol=1e-6)


def test_sigmoids_become_relu_but_for_the_output(act) -> None:
    act("relu_activations")
    model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 1), nn.Sigmoid())
    known(model)
    x = torch.randn(6, 4)
    model(x)
    wanted = torch.sigmoid(model[2](torch.relu(model[0](x))))
    assert torch.allclose(model(x), wanted)


@pytest.mark.parametrize("compiled", [False, True])
def test_batch_normalisation_goes_by_each_sample_even_of_one(compiled: bool, act) -> None:
    action = act("group_norm")
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
    known(model)
    run = torch.compile(model, backend="aot_eager") if compiled else model
    x = torch.randn(3, 4)
    wanted = functional.layer_norm(model[0](x), (8,))
    assert torch.allclose(run(x), wanted, atol=1e-6)
    assert torch.allclose(run(x[:1]), wanted[:1], atol=1e-6)
    assert action.applied == 1


def test_dropout_is_capped(act) -> None:
    action = act("dropout_0.1")
    x = torch.ones(10_000)
    assert float((functional.dropout(x, 0.9) == 0).float().mean()) == pytest.approx(0.1, abs=0.02)
    assert float((nn.Dropout(0.9)(x) == 0).float().mean()) == pytest.approx(0.1, abs=0.02)
    assert action.applied == 2


def test_attention_logits_are_bounded_and_masks_kept(act) -> None:
    act("bounded_attention")
    logits = torch.tensor([[[1000.0, 0.0, -math.inf]]], requires_grad=True)
    weights = logits.softmax(-1)
    assert float(weights[..., 1].detach()) == pytest.approx(1 / (1 + math.exp(10)), rel=1e-3)
    assert float(weights[..., 2].detach()) == 0.0


@pytest.mark.parametrize("last", [nn.ReLU(), nn.ReLU(inplace=True), nn.Softmax(1), nn.Sigmoid()])
def test_the_last_activation_is_taken_away(last: nn.Module, act) -> None:
    action = act("no_output_activation")
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3), last)
    known(model)
    x = torch.randn(6, 4)
    wanted = model[2](model[1](model[0](x)))
    assert torch.allclose(model(x), wanted)
    assert action.applied


def test_the_loss_gets_what_it_expects(act) -> None:
    logits = torch.randn(4, 3)
    target = torch.rand(4, 3)
    entropy = functional.cross_entropy(logits, LABELS)
    binary = functional.binary_cross_entropy_with_logits(logits, target)
    action = act("fitting_output")
    assert torch.allclose(functional.cross_entropy(logits.softmax(1), LABELS), entropy)
    assert torch.allclose(functional.nll_loss(logits, LABELS), entropy)
    assert torch.allclose(functional.binary_cross_entropy(logits, target), binary)
    sigmoid = torch.sigmoid(logits)
    ours = functional.binary_cross_entropy_with_logits(sigmoid, target)
    assert torch.allclose(ours, binary, atol=1e-5)
    assert action.applied == 4
    assert torch.allclose(functional.cross_entropy(logits, LABELS), entropy)
    assert action.applied == 4


def test_squared_errors_on_classes_become_cross_entropy(act) -> None:
    logits = torch.randn(4, 3)
    wanted = functional.cross_entropy(logits, LABELS)
    act("cross_entropy")
    onehot = functional.one_hot(LABELS, 3).float()
    assert torch.allclose(functional.mse_loss(logits, onehot), wanted)
    assert torch.allclose(functional.mse_loss(logits.softmax(1), onehot), wanted, atol=1e-5)


def test_shapes_are_equal_where_they_meet(act) -> None:
    a, b = torch.randn(6, 1), torch.randn(6)
    wanted = ((a.squeeze(1) - b) ** 2).mean()
    act("equal_shapes")
    assert torch.allclose(((a - b) ** 2).mean(), wanted)
    assert torch.allclose(((b - a) ** 2).mean(), wanted)
    assert torch.allclose(nn.MSELoss()(a, b), wanted)


def test_reductions(act) -> None:
    a, b = torch.randn(6, 4, requires_grad=True), torch.randn(6, 4)
    mean = functional.mse_loss(a, b)
    act("mean_reduction")
    assert torch.allclose(nn.MSELoss(reduction="sum")(a, b), mean)
    assert torch.allclose(((a - b) ** 2).sum(), mean)


def test_errors_are_summed_for_each_sample(act) -> None:
    a, b = torch.randn(6, 4), torch.randn(6, 4)
    wanted = ((a - b) ** 2).sum(1).mean()
    act("sum_per_sample")
    assert torch.allclose(functional.mse_loss(a, b), wanted)


@pytest.mark.parametrize(
    ("operation", "at"),
    [
        (torch.log, 0.0), (torch.sqrt, 0.0), (torch.exp, 1000.0), (lambda x: 1 / x, 0.0),
        (lambda x: x / x, 0.0), (torch.log1p, -1.0), (torch.acos, 1.0), (lambda x: x**0.5, 0.0),
        (lambda x: x.norm(), 0.0), (lambda x: x.reciprocal(), 0.0), (lambda x: x.log(), -1.0),
    ],
)  # fmt: skip
def test_operands_are_kept_where_value_and_gradient_are_finite(operation, at: float, act) -> None:
    act("clamp_operands")
    x = torch.tensor([at, 0.5], requires_grad=True)
    operation(x).sum().backward()
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())


def test_inputs_are_standardised_by_the_first_batch(act) -> None:
    act("standardise_input")
    seen = []
    model = nn.Linear(3, 1)
    model.register_forward_hook(lambda module, args, out: seen.append(args[0]))
    known(model)
    first = torch.randn(50, 3) * torch.tensor([1.0, 100.0, 1e4]) + 5
    model(first)
    model(first * 2)
    assert torch.allclose(seen[0].std(0), torch.ones(3), atol=1e-3)
    assert torch.allclose(seen[0].mean(0), torch.zeros(3), atol=1e-3)
    assert float(seen[1].std()) > 1.5


def test_targets_are_standardised(act) -> None:
    act("standardise_targets")
    target = torch.randn(64, 1) * 1e4 + 3e4
    prediction = torch.zeros(64, 1, requires_grad=True)
    assert float(functional.mse_loss(prediction, target).detach()) == pytest.approx(1, abs=0.1)
    assert float(((prediction - target) ** 2).mean().detach()) == pytest.approx(1, abs=0.1)


def test_gaps_in_the_data_are_filled(act) -> None:
    action = act("fill_nonfinite")
    model = nn.Linear(2, 1)
    known(model)
    assert bool(torch.isfinite(model(torch.tensor([[math.nan, 1.0]]))).all())
    assert action.applied == 1


def test_a_batch_far_from_the_others_is_skipped(act) -> None:
    action = act("skip_outliers")
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for scale in [1.0] * 8 + [1e4]:
        before = model.weight.detach().clone()
        optimizer.zero_grad()
        functional.mse_loss(model(scale * torch.ones(4, 2)), torch.ones(4, 1)).backward()
        optimizer.step()
    assert action.applied == 1
    assert torch.equal(model.weight.detach(), before)


def test_rare_classes_weigh_more(act) -> None:
    act("class_weights")
    logits = torch.zeros(4, 2)
    logits[3, 1] = -2.0
    target = torch.tensor([0, 0, 0, 1])
    wanted = functional.cross_entropy(logits, target, torch.tensor([4 / 6, 2.0]))
    plain = nn.CrossEntropyLoss()(logits, target)
    assert float(plain) == pytest.approx(float(wanted), rel=0.3)


def test_samples_come_in_random_order_and_stay_together(act) -> None:
    act("shuffle")
    x = torch.arange(64.0)
    loader = DataLoader(TensorDataset(x), batch_size=16)
    drawn = torch.cat([batch for (batch,) in loader])
    assert not torch.equal(drawn, x)
    assert torch.equal(drawn.sort().values, x)
    a, b = x[:16], (2 * x)[:16]
    assert torch.equal(2 * a, b)
    assert not torch.equal(a, torch.arange(16.0))


def test_nothing_stays_in_half_precision(act) -> None:
    action = act("float32")
    model = nn.Linear(2, 2).half()
    assert model.weight.dtype == torch.float32
    assert torch.ones(2).half().dtype == torch.float32
    assert torch.zeros(2, dtype=torch.float16).dtype == torch.float32
    assert nn.Linear(2, 2).to(torch.bfloat16).weight.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert action.applied >= 5
