"""The token bucket: exact refills, waits, and corrections of what was taken."""

from fractions import Fraction
from math import floor

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.limits.bucket import MINUTE, Bucket, Taken
from gateway.limits.moment import NANOSECONDS

SECOND = NANOSECONDS


def test_an_idle_bucket_allows_the_whole_limit_at_once() -> None:
    bucket = Bucket()
    assert bucket.wait(60, 60, 0) == 0
    bucket.take(60, 60, 0)
    assert bucket.remaining(60, 0) == 0


def test_the_wait_ends_exactly_when_the_amount_has_drained() -> None:
    bucket = Bucket()
    bucket.take(60, 60, 0)
    assert bucket.wait(2, 60, 0) == 2 * SECOND
    assert bucket.wait(2, 60, 2 * SECOND - 1) == 1
    assert bucket.wait(2, 60, 2 * SECOND) == 0


def test_the_reset_is_the_time_until_the_whole_limit_remains() -> None:
    bucket = Bucket()
    assert bucket.reset(60, 0) == 0
    bucket.take(6, 60, 0)
    assert bucket.reset(60, SECOND) == 5 * SECOND
    assert bucket.remaining(60, 7 * SECOND) == 60


def test_more_than_the_limit_drains_before_anything_else_is_admitted() -> None:
    bucket = Bucket()
    bucket.amend(bucket.take(60, 60, 0), 90, 60, 0)
    assert bucket.remaining(60, 0) == 0
    assert bucket.wait(1, 60, 0) == 31 * SECOND


def test_an_unused_part_is_given_back() -> None:
    bucket = Bucket()
    taken = bucket.take(50, 60, 0)
    bucket.amend(taken, 10, 60, 0)
    assert bucket.remaining(60, 0) == 50


def test_a_part_that_has_drained_is_not_given_back_again() -> None:
    bucket = Bucket()
    held = bucket.take(60, 60, 0)
    bucket.take(60, 60, MINUTE)
    bucket.amend(held, 0, 60, MINUTE)
    assert bucket.remaining(60, MINUTE) == 0


def test_a_changed_limit_keeps_what_was_used() -> None:
    bucket = Bucket()
    bucket.take(60, 60, 0)
    assert bucket.remaining(100, 0) == 40
    assert bucket.remaining(30, 0) == 0


def drained(charges: list[tuple[int, int]], limit: int, now: int) -> Fraction:
    """Return the level of a bucket with these (time, amount) charges."""
    level, at = Fraction(0), 0
    for time, amount in sorted(charges):
        level, at = max(Fraction(0), level - Fraction(limit * (time - at), MINUTE)) + amount, time
    return max(Fraction(0), level - Fraction(limit * (now - at), MINUTE))


STEP = st.tuples(st.integers(0, 90 * SECOND), st.integers(0, 100), st.integers(0, 120), st.integers(0, 4))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.lists(STEP, max_size=25))
def test_corrections_never_give_back_more_than_was_unused(limit: int, steps: list[tuple[int, int, int, int]]) -> None:
    """After any corrections, at least as much is used as if each request had taken its final amount at its start."""
    bucket, now = Bucket(), 0
    opened: list[tuple[Taken, int]] = []
    final: list[tuple[int, int]] = []
    for pause, bound, amount, oldest in steps:
        now += pause
        opened.append((bucket.take(bound, limit, now), amount))
        while len(opened) > oldest:
            taken, spent = opened.pop(0)
            bucket.amend(taken, spent, limit, now)
            final.append((taken.at, spent))
    for taken, spent in opened:
        bucket.amend(taken, spent, limit, now)
        final.append((taken.at, spent))
    assert bucket.reset(limit, now) >= drained(final, limit, now) * MINUTE / limit


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.lists(st.tuples(st.integers(0, 90 * SECOND), st.integers(0, 100)), max_size=25))
def test_the_level_is_exact(limit: int, charges: list[tuple[int, int]]) -> None:
    bucket, now, made = Bucket(), 0, []
    for pause, amount in charges:
        now += pause
        bucket.take(amount, limit, now)
        made.append((now, amount))
        assert bucket.remaining(limit, now) == max(0, floor(limit - drained(made, limit, now)))
