"""Budgets of days and months in UTC."""

from datetime import UTC, datetime

import pytest

from gateway.limits.budget import Budget, day, month


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("now", "start", "end"),
    [
        ("2026-01-01T00:00:00", "2026-01-01", "2026-01-02"),
        ("2026-12-31T23:59:59.999", "2026-12-31", "2027-01-01"),
        ("2028-02-28T12:00:00", "2028-02-28", "2028-02-29"),
    ],
)
def test_a_day_begins_at_midnight_in_utc(now: str, start: str, end: str) -> None:
    assert day(at(now)) == (at(start), at(end))


@pytest.mark.parametrize(
    ("now", "start", "end"),
    [
        ("2026-01-31T23:59:59", "2026-01-01", "2026-02-01"),
        ("2028-02-29T00:00:00", "2028-02-01", "2028-03-01"),
        ("2026-12-01T00:00:00", "2026-12-01", "2027-01-01"),
    ],
)
def test_a_month_begins_on_its_first_day(now: str, start: str, end: str) -> None:
    assert month(at(now)) == (at(start), at(end))


def test_charges_and_reservations_reduce_what_remains() -> None:
    budget, now = Budget(day), at("2026-03-01T10:00:00")
    budget.reserve(30)
    budget.charge(50, now)
    assert budget.remaining(100, now) == 20
    budget.reserve(-30)
    assert budget.remaining(100, now) == 50


def test_a_new_period_forgets_charges_and_keeps_reservations() -> None:
    budget = Budget(day)
    budget.charge(100, at("2026-03-01T23:59:59"))
    budget.reserve(30)
    assert budget.remaining(100, at("2026-03-01T23:59:59")) == 0
    assert budget.remaining(100, at("2026-03-02T00:00:00")) == 70


def test_a_lowered_budget_leaves_nothing_below_zero() -> None:
    budget, now = Budget(month), at("2026-03-01T00:00:00")
    budget.charge(100, now)
    assert budget.remaining(10, now) == 0


def test_the_reset_is_the_time_until_the_next_period() -> None:
    assert Budget(day).reset(at("2026-03-01T23:00:00")) == 3600
    assert Budget(month).reset(at("2026-02-27T00:00:00")) == 2 * 86400
