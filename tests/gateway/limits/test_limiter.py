"""Admission, reservations and charges of keys."""

from contextlib import AbstractContextManager, ExitStack

import pytest

from gateway.keys.key import Key, KeyLimits
from gateway.limits.limiter import Limiter, Reservation, charge_of
from gateway.middleware.errors import Problem, RefusedError
from tests.gateway.limits.virtual import JANUARY_2026, VirtualClock, key_with, record_of

DAY = 86_400


def opened(limiter: Limiter, key: Key, bound: int = 0) -> AbstractContextManager[Reservation]:
    return limiter.admitted(record_of(key), bound)


def refusal(limiter: Limiter, key: Key, bound: int = 0) -> Problem:
    with pytest.raises(RefusedError) as caught, opened(limiter, key, bound):
        pass
    return caught.value.problem


def use(limiter: Limiter, key: Key, bound: int, **counts: int) -> None:
    with limiter.admitted(record_of(key, **counts), bound):
        pass


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def limiter(clock: VirtualClock) -> Limiter:
    return Limiter(clock)


def test_a_caller_without_a_key_has_no_limits(limiter: Limiter) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(limiter.admitted(record_of(None), 10**9))


def test_a_key_without_limits_is_never_refused(limiter: Limiter) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(opened(limiter, key_with(), 10**9))


def test_a_charge_is_what_was_computed_for_the_client() -> None:
    record = record_of(None, prompt_tokens=100, cached_tokens=60, completion_tokens=7, wasted_tokens=5)
    assert charge_of(record) == 47


def test_the_request_after_the_last_one_of_a_minute_waits_for_the_refill(limiter: Limiter, clock: VirtualClock) -> None:
    key = key_with(requests_per_minute=3)
    for _ in range(3):
        use(limiter, key, 0)
    problem = refusal(limiter, key)
    assert (problem.status, problem.code, problem.type) == (429, "rate_limit_exceeded", "rate_limit_error")
    assert problem.param == "requests_per_minute"
    assert problem.headers == {"retry-after": "20", "retry-after-ms": "20000", "x-should-retry": "true"}
    clock.advance(20)
    use(limiter, key, 0)


def test_a_refused_request_counts_for_nothing(limiter: Limiter, clock: VirtualClock) -> None:
    key = key_with(requests_per_minute=2, tokens_per_minute=100)
    use(limiter, key, 0)
    with opened(limiter, key, 100):
        pass
    clock.advance(30)
    with opened(limiter, key, 100):
        for _ in range(5):
            assert refusal(limiter, key, 50).param == "requests_per_minute"
    assert limiter.ledger(key.id).running == 0


def test_tokens_are_reserved_while_a_request_runs_and_then_settled(limiter: Limiter) -> None:
    key = key_with(tokens_per_minute=100)
    record = record_of(key)
    with limiter.admitted(record, 80):
        problem = refusal(limiter, key, 21)
        assert (problem.param, problem.code) == ("tokens_per_minute", "rate_limit_exceeded")
        assert problem.headers["retry-after-ms"] == "600"
        record.prompt_tokens, record.cached_tokens, record.completion_tokens = 20, 5, 10
    assert limiter.ledger(key.id).tokens.remaining(100, limiter.clock().tick) == 75


def test_a_bound_beyond_a_limit_is_admitted_alone(limiter: Limiter) -> None:
    key = key_with(tokens_per_minute=100, tokens_per_day=500, tokens_per_month=700)
    with opened(limiter, key, 10_000):
        assert refusal(limiter, key, 1).param == "tokens_per_day"
    with opened(limiter, key, 10_000):
        pass


def test_the_counted_prompt_replaces_the_estimate(limiter: Limiter) -> None:
    key = key_with(tokens_per_minute=100, tokens_per_day=1000)
    with opened(limiter, key, 90) as reservation:
        reservation.correct(30)
        with opened(limiter, key, 70):
            assert refusal(limiter, key, 1).param == "tokens_per_minute"


def test_a_bound_that_was_too_low_is_charged_in_full(limiter: Limiter) -> None:
    key = key_with(tokens_per_minute=100, tokens_per_day=1000)
    use(limiter, key, 10, prompt_tokens=200)
    assert refusal(limiter, key, 1).headers["retry-after"] == "61"
    assert limiter.ledger(key.id).day.remaining(1000, limiter.clock().time) == 800


def test_requests_at_once_are_limited(limiter: Limiter) -> None:
    key = key_with(concurrent_requests=2)
    with opened(limiter, key), opened(limiter, key):
        problem = refusal(limiter, key)
        assert (problem.param, problem.code) == ("concurrent_requests", "rate_limit_exceeded")
        assert problem.headers == {"retry-after": "1", "retry-after-ms": "1000", "x-should-retry": "true"}
    use(limiter, key, 0)


@pytest.mark.parametrize("name", ["tokens_per_day", "tokens_per_month"])
def test_an_exhausted_budget_is_no_reason_to_retry(limiter: Limiter, name: str) -> None:
    limits = KeyLimits(**{name: 1000})
    key = Key(id="key_1", name="ours", limits=limits)
    use(limiter, key, 0, prompt_tokens=600, completion_tokens=300)
    problem = refusal(limiter, key, 101)
    assert (problem.status, problem.code, problem.type) == (429, "insufficient_quota", "insufficient_quota")
    assert problem.param == name
    assert problem.headers["x-should-retry"] == "false"
    assert "100 of 1000 tokens remain" in problem.message
    use(limiter, key, 100)


def test_a_budget_that_is_soon_renewed_is_a_reason_to_retry(limiter: Limiter, clock: VirtualClock) -> None:
    key = key_with(tokens_per_day=10)
    use(limiter, key, 0, prompt_tokens=10)
    clock.advance(86400 - 30)
    problem = refusal(limiter, key, 1)
    assert problem.headers == {"retry-after": "30", "retry-after-ms": "30000", "x-should-retry": "true"}
    clock.advance(30)
    use(limiter, key, 10)


def test_an_exhausted_budget_refuses_a_request_without_tokens(limiter: Limiter) -> None:
    key = key_with(tokens_per_day=10)
    use(limiter, key, 0, prompt_tokens=10)
    assert refusal(limiter, key, 0).param == "tokens_per_day"


def test_a_request_is_charged_to_the_day_in_which_it_ends(limiter: Limiter, clock: VirtualClock) -> None:
    key = key_with(tokens_per_day=100)
    clock.advance(86400 - 1)
    with limiter.admitted(record_of(key, prompt_tokens=40), 50):
        clock.advance(2)
        assert limiter.ledger(key.id).day.remaining(100, clock.time) == 50
    assert limiter.ledger(key.id).day.remaining(100, clock.time) == 60


@pytest.mark.anyio
async def test_earlier_use_is_restored_at_the_start(limiter: Limiter, clock: VirtualClock) -> None:
    today, first = JANUARY_2026 + 40 * DAY, JANUARY_2026 + 31 * DAY
    clock.advance(40 * DAY + 3600)
    used = {today: {"key_1": 30}, first: {"key_1": 40, "key_2": 100}, first - DAY: {"key_1": 1000}}

    async def charged(since: float, until: float) -> dict[str, int]:
        assert until == since + DAY
        return used.get(since, {})

    await limiter.restore(charged)
    assert refusal(limiter, key_with(tokens_per_day=30), 1).param == "tokens_per_day"
    assert refusal(limiter, key_with(tokens_per_month=70), 1).param == "tokens_per_month"
    assert refusal(limiter, key_with("key_2", tokens_per_month=100), 1).param == "tokens_per_month"
    use(limiter, key_with("key_2", tokens_per_day=1), 1)


def test_changed_limits_apply_to_the_next_request(limiter: Limiter) -> None:
    with opened(limiter, key_with(), 50):
        assert refusal(limiter, key_with(concurrent_requests=1)).param == "concurrent_requests"
        assert refusal(limiter, key_with(tokens_per_day=60), 11).param == "tokens_per_day"
        use(limiter, key_with(tokens_per_day=60), 10)


def test_keys_do_not_affect_each_other(limiter: Limiter) -> None:
    with opened(limiter, key_with("key_1", concurrent_requests=1)):
        use(limiter, key_with("key_2", concurrent_requests=1), 0)


def test_a_failed_request_gives_back_what_it_holds(limiter: Limiter) -> None:
    key = key_with(tokens_per_minute=100, concurrent_requests=1, tokens_per_day=100)
    with pytest.raises(RuntimeError), opened(limiter, key, 100):
        raise RuntimeError
    use(limiter, key, 100)
