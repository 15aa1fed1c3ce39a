"""When to look: dense at first, then within the budget, whatever looks and steps cost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuraldbg.torch.schedule import (
    ALLOWANCE,
    BURST,
    FIRST_LOOK,
    FOLLOWING,
    LATER_TRAININGS,
    LEAST_PERIOD,
    RESERVE,
    WARM_UP,
    Schedule,
)

seconds = st.floats(0, 10)
# Seconds of the run, of a look, of following the step; whether the loss looks suspicious.
steps = st.lists(st.tuples(seconds, seconds, st.floats(0, 0.1), st.booleans()), max_size=300)


def run(schedule: Schedule, made: list[tuple[float, float, float, bool]]) -> tuple[float, ...]:
    """Follow a run; returns the cost of looks, the last look's, of the rest, and the time."""
    due, looks, last, rest, time = True, 0.0, 0.0, 0.0, 0.0
    for theirs, look, follow, suspicious in made:
        if suspicious:
            schedule.trigger()
        if due:
            schedule.looked(look)
            # What the first look takes beyond its limit is paid once, by nobody's budget.
            last = min(look, FIRST_LOOK) if schedule.looks == 1 else look
            looks += last
        schedule.passed(theirs, 0.0 if due else follow)
        rest += 0.0 if due else follow
        time += theirs
        due = schedule.next_step()
    return looks, last, rest, time


@given(steps, st.floats(0, 1))
@settings(deadline=None, max_examples=300)
def test_looks_never_cost_more_than_allowance_and_budget(
    made: list[tuple[float, float, float, bool]], budget: float
) -> None:
    """Up to the one look that overdrew."""
    looks, last, _, time = run(Schedule(budget), made)
    assert looks - last <= ALLOWANCE + budget * time + 1e-9


@given(st.floats(1e-4, 1), st.floats(1e-4, 1), st.floats(0.001, 0.5), st.integers(10, 3000))
@settings(deadline=None, max_examples=50)
def test_all_costs_stay_within_allowance_and_budget_where_following_is_cheap(
    theirs: float, look: float, budget: float, count: int
) -> None:
    """Following a step takes at most its part of what the step earns."""
    follow = FOLLOWING * budget * theirs
    looks, last, rest, time = run(Schedule(budget), [(theirs, look, follow, False)] * count)
    assert looks + rest - last <= ALLOWANCE + budget * time + 1e-9


def due_steps(schedule: Schedule, count: int, theirs: float, look: float) -> list[int]:
    due, found = True, []
    for step in range(count):
        if due:
            found.append(step)
            schedule.looked(look)
        schedule.passed(theirs)
        due = schedule.next_step()
    return found


def test_dense_in_warm_up() -> None:
    assert due_steps(Schedule(0.02), 100, theirs=0.01, look=1e-3) == list(range(100))


def test_warm_up_leaves_a_reserve() -> None:
    found = due_steps(Schedule(0.0), 1000, theirs=1.0, look=0.1)
    dense = round((ALLOWANCE - RESERVE) / 0.1) - 1
    assert found[:dense] == list(range(dense))
    assert dense <= len(found) <= dense + 1


def test_after_warm_up_every_step_but_few_is_left_alone() -> None:
    found = due_steps(Schedule(1.0), 3 * WARM_UP, theirs=1.0, look=1e-6)
    assert found[:WARM_UP] == list(range(WARM_UP))
    gaps = {b - a for a, b in zip(found[WARM_UP:], found[WARM_UP + 1 :], strict=False)}
    assert gaps == {LEAST_PERIOD}


def test_the_period_follows_from_cost_and_budget() -> None:
    """A look that costs a step, at two per cent: one in fifty."""
    found = due_steps(Schedule(0.02), 4000, theirs=0.1, look=0.1)
    late = [step for step in found if step > 1000]
    assert (late[-1] - late[0]) / (len(late) - 1) == pytest.approx(50, rel=0.05)


def test_short_steps_do_not_starve_the_looks() -> None:
    """Where following alone would take the budget, looks still get their half."""
    schedule = Schedule(0.02)
    looks, _, _, time = run(schedule, [(1e-3, 1e-3, 1e-3, False)] * 200_000)
    assert looks == pytest.approx(ALLOWANCE - RESERVE + 0.5 * 0.02 * time, rel=0.1)


def test_a_trigger_brings_a_burst() -> None:
    schedule = Schedule(0.0)
    due_steps(schedule, 100, theirs=1.0, look=0.1)
    schedule.looked(0.01)
    schedule._cost = 0.01
    schedule.trigger()
    due = [schedule.next_step() and schedule.looked(0.01) is None for _ in range(BURST + 5)]
    assert due == [True] * BURST + [False] * 5


def test_a_trigger_cannot_spend_what_is_not_there() -> None:
    schedule = Schedule(0.0)
    schedule.looked(0.0)
    schedule.looked(ALLOWANCE)
    schedule.trigger()
    assert not any(schedule.next_step() for _ in range(100))


def test_an_infinite_budget_looks_always() -> None:
    schedule = Schedule(float("inf"))
    assert due_steps(schedule, 2000, theirs=0.0, look=100.0) == list(range(2000))


@given(st.lists(st.floats(-1, 0), max_size=20))
def test_clocks_that_stand_still_earn_nothing(times: list[float]) -> None:
    schedule = Schedule(0.5)
    schedule.looked(0.0)
    schedule.looked(ALLOWANCE)
    for time in times:
        schedule.passed(time)
        assert not schedule.next_step()


def test_a_first_look_that_also_finds_the_models_leaves_room_for_the_next() -> None:
    schedule = Schedule(0.02)
    schedule.looked(3 * ALLOWANCE)
    schedule.passed(1e-3)
    assert schedule.next_step()


def test_a_later_training_is_looked_at_from_its_start() -> None:
    """However much the first one took; a few times, for some make an optimizer in each epoch."""
    schedule = Schedule(0.0)
    schedule.looked(0.01)
    while schedule.next_step() or schedule.next_step():
        schedule.looked(0.1)
    for begun in range(LATER_TRAININGS + 1):
        for _ in range(50):
            if schedule.next_step():
                schedule.looked(0.1)
        schedule.anew()
        assert schedule.next_step() == (begun < LATER_TRAININGS)
        schedule.looked(0.1)


def slowed(theirs: float, count: int = 4_000) -> list[int]:
    """The steps looked at when a step takes 20 ms, or so long where it is looked at."""
    schedule, due, found = Schedule(0.02), True, []
    for step in range(count):
        if due:
            schedule.looked(0.01, theirs)
            found.append(step)
        schedule.passed(theirs if due else 0.02)
        due = schedule.next_step()
    return [step for step in found if step >= WARM_UP]


def test_what_looks_slow_their_steps_by_is_paid_for() -> None:
    """By 40 ms here, beside the 10 ms of the look: five times the price, a fifth of the looks."""
    paid, slow = len(slowed(0.02)), len(slowed(0.06))
    assert slow * (0.01 + 0.04) <= 0.02 * 4_000 * 0.02 + RESERVE
    assert 3 * slow < paid


def test_a_step_that_is_looked_at_may_be_shorter_by_chance() -> None:
    assert len(slowed(0.015)) >= len(slowed(0.02)) - 1


def test_one_long_step_is_not_charged_to_the_look_in_it() -> None:
    """It was a pause, or something was compiled."""
    schedule = Schedule(0.02)
    schedule.looked(0.01, 0.02)
    schedule.passed(0.02)
    while schedule.next_step():
        schedule.looked(0.01, 0.02)
        schedule.passed(0.02)
    for _ in range(100):
        schedule.passed(0.02)
        schedule.next_step()
    schedule.looked(0.01, 60.0)
    schedule.passed(60.0)
    waited = 0
    while not schedule.next_step():
        schedule.passed(0.02)
        waited += 1
    assert waited < 60
