"""The usual training loop, as a plan describes it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from neuraldbg.testing.plan import Course, Data, Plan

State = dict[str, Any]


def run(plan: Plan, seed: int, start: State | None = None) -> Course:
    """Carry out a plan.

    Args:
        plan: What to train, and how.
        seed: Seeds everything.
        start: Weights to start from, as `pretrained` gives them.
    """
    torch.manual_seed(seed)
    data = plan.data()
    for change in plan.data_edits:
        data = change(data)
    model = plan.build(**plan.shape)
    if start is not None:
        model.load_state_dict(start)
    for edit in plan.model_edits:
        model = edit(model)
    return plan.loop(plan, model, data) if plan.loop else Training(plan, model, data).run()


def pretrained(plan: Plan, seed: int) -> State | None:
    """The weights that the plan starts from; None if it starts anew."""
    if plan.pretraining is None:
        return None
    return dict(run(plan.pretraining, seed).model.state_dict())


def batches(plan: Plan, count: int) -> Iterator[Tensor]:
    """Indices of batches, epoch after epoch; a batch that is not full is left out."""
    while True:
        order = torch.randperm(count) if plan.shuffle else torch.arange(count)
        rows = order.split(plan.batch)
        yield from rows if len(rows) == 1 else (r for r in rows if len(r) == plan.batch)


class Training:
    """One training run of one model with one optimizer."""

    def __init__(self, plan: Plan, model: nn.Module, data: Data) -> None:
        self.plan = plan
        self.model = model
        self.data = data
        self.optimizer = plan.optimizer(list(plan.trained(model)), **plan.settings)
        self.scheduler = plan.schedule(self.optimizer) if plan.schedule else None
        self.scaler = torch.amp.GradScaler("cpu", enabled=plan.scaled)
        self.losses: list[float] = []
        self.held: list[float] = []

    def run(self) -> Course:
        """Train, evaluating now and then, and measure the model at the end."""
        plan = self.plan
        source = batches(plan, len(self.data))
        self.model.train(not plan.trains_in_eval)
        for step in range(plan.steps):
            if self.done():
                break
            self.losses.append(self.step(step, source))
            if self.scheduler is not None and (step + 1) % plan.schedule_period == 0:
                self.scheduler.step()
            if plan.evaluate_every and (step + 1) % plan.evaluate_every == 0:
                self.evaluate()
        return Course(self.model, self.data, self.measure(), tuple(self.losses), tuple(self.held))

    def done(self) -> bool:
        """Whether to end before all steps are taken."""
        return False

    def step(self, step: int, source: Iterator[Tensor]) -> float:
        """One optimizer step; returns its loss."""
        total = 0.0
        if self.plan.zeroes:
            self.optimizer.zero_grad()
        for _ in range(self.plan.accumulate):
            rows = next(source)
            inputs, targets = self.data.inputs[rows], self.data.targets[rows]
            for edit in self.plan.batch_edits:
                inputs, targets = edit(step, inputs, targets)
            total += self.backward(inputs, targets)
        self.update()
        return total

    def backward(self, inputs: Tensor, targets: Tensor) -> float:
        """One backward pass; returns its share of the loss."""
        with self.plan.precision():
            output = self.plan.forward(self.model, inputs)
            loss = self.plan.loss(output, targets)
        if self.plan.accumulate > 1 and self.plan.averages:
            loss = loss / self.plan.accumulate
        if self.plan.scaled:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()
        return float(loss.detach())

    def update(self) -> None:
        """Clip and step, as planned."""
        plan = self.plan
        if plan.scaled and plan.unscales:
            self.scaler.unscale_(self.optimizer)
        if plan.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), plan.clip)
        if not plan.updates:
            return
        if plan.scaled:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def evaluate(self) -> None:
        """Note the loss on held-out data."""
        self.model.train(not self.plan.evaluates_in_eval)
        with torch.no_grad():
            output = self.plan.forward(self.model, self.data.test_inputs)
            self.held.append(float(self.plan.loss(output, self.data.test_targets)))
        if self.plan.returns_to_train and not self.plan.trains_in_eval:
            self.model.train()

    def measure(self) -> float:
        """The program's metric, in the mode that the program evaluates in."""
        self.model.train(not self.plan.evaluates_in_eval)
        return measured(self.plan, self.model, self.data)


def measured(plan: Plan, model: nn.Module, data: Data) -> float:
    """The program's metric in the model's present mode; NaN if it is not finite."""
    with torch.no_grad():
        value = float(plan.measure(model, data))
    return value if math.isfinite(value) else math.nan
