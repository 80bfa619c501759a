"""Behaviour of every limiter: admission, reservations and charges of keys. Each case gets an empty one."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass

import pytest

from gateway.keys.key import Key, KeyLimits
from gateway.limits.headers import rate_limit_headers
from gateway.limits.limiter import Correct, Limiter
from gateway.middleware.errors import Problem, RefusedError
from gateway.serving.records import RequestRecord
from tests.gateway.limits.virtual import JANUARY_2026, VirtualClock, key_with, record_of

DAY = 86_400


@dataclass(frozen=True)
class Bench:
    """A limiter on a clock."""

    limiter: Limiter
    clock: VirtualClock
    settled: Callable[[], Awaitable[None]]
    """Waits until all requests that have ended are charged."""

    def opened(self, key: Key | None, bound: int = 0, **counts: int) -> AbstractAsyncContextManager[Correct]:
        return self.limiter.admitted(record_of(key, **counts), bound)

    async def use(self, key: Key, bound: int, **counts: int) -> None:
        await self.run(record_of(key, **counts), bound)

    async def run(self, record: RequestRecord, bound: int) -> None:
        """Run a request to its end, and charge it."""
        async with self.limiter.admitted(record, bound):
            pass
        await self.settled()

    async def refusal(self, key: Key, bound: int = 0) -> Problem:
        with pytest.raises(RefusedError) as caught:
            async with self.opened(key, bound):
                pass
        return caught.value.problem

    async def left(self, key: Key, limit: int, name: str = "tokens_per_day") -> int:
        """Return what remains of a budget, as a refusal says it."""
        problem = await self.refusal(Key(id=key.id, name="", limits=KeyLimits(**{name: limit})), limit)
        return int(problem.message.partition("not suffice: ")[2].partition(" ")[0])


Case = Callable[[Bench], Awaitable[None]]


async def a_caller_without_a_key_or_limits_is_never_refused(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        for key in (None, key_with()) * 100:
            await stack.enter_async_context(bench.opened(key, 10**9))


async def the_request_after_the_last_one_of_a_minute_waits_for_the_refill(bench: Bench) -> None:
    key = key_with(requests_per_minute=3)
    for _ in range(3):
        await bench.use(key, 0)
    problem = await bench.refusal(key)
    assert (problem.status, problem.code, problem.type) == (429, "rate_limit_exceeded", "rate_limit_error")
    assert problem.param == "requests_per_minute"
    assert problem.headers == {"retry-after": "20", "retry-after-ms": "20000", "x-should-retry": "true"}
    bench.clock.advance(20)
    await bench.use(key, 0)


async def a_refused_request_counts_for_nothing(bench: Bench) -> None:
    key = key_with(requests_per_minute=2, tokens_per_minute=100)
    await bench.use(key, 0)
    async with bench.opened(key, 100):
        pass
    bench.clock.advance(30)
    async with bench.opened(key, 100):
        for _ in range(5):
            assert (await bench.refusal(key, 50)).param == "requests_per_minute"
    await bench.use(key_with(concurrent_requests=1), 0)


async def tokens_are_reserved_while_a_request_runs_and_then_settled(bench: Bench) -> None:
    key = key_with(tokens_per_minute=100)
    record = record_of(key)
    async with bench.limiter.admitted(record, 80):
        problem = await bench.refusal(key, 21)
        assert (problem.param, problem.code) == ("tokens_per_minute", "rate_limit_exceeded")
        assert problem.headers["retry-after-ms"] == "600"
        record.prompt_tokens, record.cached_tokens, record.completion_tokens = 20, 5, 10
    await bench.settled()
    assert dict(rate_limit_headers(key, bench.limiter))[b"x-ratelimit-remaining-tokens"] == b"75"


async def the_headers_count_the_request_itself(bench: Bench) -> None:
    key = key_with(requests_per_minute=3, tokens_per_minute=100)
    async with bench.opened(key, 30) as correct:
        assert left_per_minute(key, bench) == (2, 70)
        correct(50)
        await bench.settled()
        assert left_per_minute(key, bench) == (2, 50)
    await bench.settled()
    assert left_per_minute(key, bench) == (2, 100)


def left_per_minute(key: Key, bench: Bench) -> tuple[int, int]:
    """Return the requests and the tokens that remain, as the headers say it."""
    headers = dict(rate_limit_headers(key, bench.limiter))
    return int(headers[b"x-ratelimit-remaining-requests"]), int(headers[b"x-ratelimit-remaining-tokens"])


async def a_bound_beyond_what_can_be_stored_is_a_large_one(bench: Bench) -> None:
    key = key_with(tokens_per_day=1000)
    async with bench.opened(key, 10**30, prompt_tokens=3) as correct:
        correct(10**30)
        await bench.settled()
        assert await bench.left(key, 1000) == 0
    await bench.settled()
    assert await bench.left(key, 1000) == 997


async def a_bound_beyond_a_limit_is_admitted_alone(bench: Bench) -> None:
    key = key_with(tokens_per_minute=100, tokens_per_day=500, tokens_per_month=700)
    async with bench.opened(key, 10_000):
        assert (await bench.refusal(key, 1)).param == "tokens_per_day"
    async with bench.opened(key, 10_000):
        pass


async def a_bound_beyond_a_rate_takes_no_more_than_the_rate(bench: Bench) -> None:
    key = key_with(tokens_per_minute=100)
    async with bench.opened(key, 10_000) as correct:
        assert (await bench.refusal(key, 100)).headers["retry-after"] == "60"
        correct(20_000)
        await bench.settled()
        assert (await bench.refusal(key, 100)).headers["retry-after"] == "60"


async def the_counted_prompt_replaces_the_estimate(bench: Bench) -> None:
    key = key_with(tokens_per_minute=100, tokens_per_day=1000)
    async with bench.opened(key, 90) as correct:
        correct(30)
        async with bench.opened(key, 70):
            assert (await bench.refusal(key, 1)).param == "tokens_per_minute"


async def the_counted_prompt_replaces_what_the_estimate_reserves_of_budgets(bench: Bench) -> None:
    key = key_with(tokens_per_day=1000, tokens_per_month=2000)
    async with bench.opened(key, 900, prompt_tokens=10) as correct:
        correct(300)
        await bench.settled()
        assert await bench.left(key, 1000) == 700
        assert await bench.left(key, 2000, "tokens_per_month") == 1700
    await bench.settled()
    assert await bench.left(key, 1000) == 990
    assert await bench.left(key, 2000, "tokens_per_month") == 1990


async def a_bound_that_was_too_low_is_charged_in_full(bench: Bench) -> None:
    key = key_with(tokens_per_minute=100, tokens_per_day=1000)
    await bench.use(key, 10, prompt_tokens=200)
    assert (await bench.refusal(key, 1)).headers["retry-after"] == "61"
    assert await bench.left(key, 1000) == 800


async def requests_at_once_are_limited(bench: Bench) -> None:
    key = key_with(concurrent_requests=2)
    for _ in range(2):
        async with bench.opened(key), bench.opened(key):
            problem = await bench.refusal(key)
            assert (problem.param, problem.code) == ("concurrent_requests", "rate_limit_exceeded")
            assert problem.headers == {"retry-after": "1", "retry-after-ms": "1000", "x-should-retry": "true"}
        await bench.settled()
    await bench.use(key, 0)


async def an_exhausted_budget_of_a_day_is_no_reason_to_retry(bench: Bench) -> None:
    await an_exhausted_budget_is_no_reason_to_retry(bench, "tokens_per_day")


async def an_exhausted_budget_of_a_month_is_no_reason_to_retry(bench: Bench) -> None:
    await an_exhausted_budget_is_no_reason_to_retry(bench, "tokens_per_month")


async def an_exhausted_budget_is_no_reason_to_retry(bench: Bench, name: str) -> None:
    limits = KeyLimits(**{name: 1000})
    key = Key(id="key_1", name="ours", limits=limits)
    await bench.use(key, 0, prompt_tokens=600, completion_tokens=300)
    problem = await bench.refusal(key, 101)
    assert (problem.status, problem.code, problem.type) == (429, "insufficient_quota", "insufficient_quota")
    assert problem.param == name
    assert problem.headers["x-should-retry"] == "false"
    assert "100 of 1000 tokens remain" in problem.message
    await bench.use(key, 100)


async def a_budget_that_is_soon_renewed_is_a_reason_to_retry(bench: Bench) -> None:
    key = key_with(tokens_per_day=10)
    await bench.use(key, 0, prompt_tokens=10)
    bench.clock.advance(86400 - 30)
    problem = await bench.refusal(key, 1)
    assert problem.headers == {"retry-after": "30", "retry-after-ms": "30000", "x-should-retry": "true"}
    bench.clock.advance(30)
    await bench.use(key, 10)


async def an_exhausted_budget_refuses_a_request_without_tokens(bench: Bench) -> None:
    for name in ("tokens_per_day", "tokens_per_month"):
        key = Key(id=name, name="ours", limits=KeyLimits(**{name: 10}))
        await bench.use(key, 0, prompt_tokens=11)
        problem = await bench.refusal(key, 0)
        assert problem.param == name
        assert ": 0 of 10 tokens remain" in problem.message


async def a_request_is_charged_to_the_day_in_which_it_ends(bench: Bench) -> None:
    key = key_with(tokens_per_day=100)
    bench.clock.advance(86400 - 1)
    async with bench.opened(key, 50, prompt_tokens=40):
        bench.clock.advance(2)
        assert await bench.left(key, 100) == 50
    assert await bench.left(key, 100) == 60


async def earlier_use_is_restored_at_the_start(bench: Bench) -> None:
    today, first = JANUARY_2026 + 40 * DAY, JANUARY_2026 + 31 * DAY
    bench.clock.advance(40 * DAY + 3600)
    used = {today: {"key_1": 30}, first: {"key_1": 40, "key_2": 100}, first - DAY: {"key_1": 1000}}

    async def charged(since: float, until: float) -> dict[str, int]:
        assert until == since + DAY
        return used.get(since, {})

    await bench.limiter.restore(charged)
    assert (await bench.refusal(key_with(tokens_per_day=30), 1)).param == "tokens_per_day"
    assert (await bench.refusal(key_with(tokens_per_month=70), 1)).param == "tokens_per_month"
    assert (await bench.refusal(key_with("key_2", tokens_per_month=100), 1)).param == "tokens_per_month"
    await bench.use(key_with("key_2", tokens_per_day=1), 1)


async def changed_limits_apply_to_the_next_request(bench: Bench) -> None:
    async with bench.opened(key_with(), 50):
        assert (await bench.refusal(key_with(concurrent_requests=1))).param == "concurrent_requests"
        assert (await bench.refusal(key_with(tokens_per_day=60), 11)).param == "tokens_per_day"
        await bench.use(key_with(tokens_per_day=60), 10)


async def keys_do_not_affect_each_other(bench: Bench) -> None:
    async with bench.opened(key_with("key_1", concurrent_requests=1)):
        await bench.use(key_with("key_2", concurrent_requests=1), 0)


async def a_failed_request_gives_back_what_it_holds(bench: Bench) -> None:
    key = key_with(tokens_per_minute=100, concurrent_requests=1, tokens_per_day=100)
    with pytest.raises(RuntimeError):
        async with bench.opened(key, 100):
            raise RuntimeError
    await bench.use(key, 100)


async def tokens_of_a_request_that_outlives_the_refill_are_not_given_back_twice(bench: Bench) -> None:
    key = key_with(tokens_per_minute=600)
    async with bench.opened(key, 600, prompt_tokens=100):
        bench.clock.advance(30)
    async with bench.opened(key, 500):
        assert (await bench.refusal(key, 101)).param == "tokens_per_minute"
    async with bench.opened(key, 300):
        bench.clock.advance(90)
    await bench.use(key, 600)


async def tokens_that_have_been_refilled_are_not_given_back_from_those_of_others(bench: Bench) -> None:
    key = key_with(tokens_per_minute=600)
    async with bench.opened(key, 300):
        bench.clock.advance(30)
        await bench.use(key, 300, prompt_tokens=300)
    await bench.settled()
    assert (await bench.refusal(key, 301)).param == "tokens_per_minute"


async def a_month_is_one_of_the_calendar(bench: Bench) -> None:
    key = key_with(tokens_per_month=100)
    await bench.use(key, 0, prompt_tokens=100)
    bench.clock.advance(31 * DAY - 1)
    assert (await bench.refusal(key, 1)).headers["retry-after"] == "1"
    bench.clock.advance(1)
    await bench.use(key, 100)


async def rates_refill_after_the_clock_was_set_back(bench: Bench) -> None:
    key = key_with(requests_per_minute=3, tokens_per_minute=30)
    for _ in range(3):
        await bench.use(key, 10, prompt_tokens=10)
    bench.clock.step(-3600)
    assert (await bench.refusal(key, 10)).param == "requests_per_minute"
    bench.clock.advance(20)
    await bench.use(key, 10)


async def charges_of_days_to_come_are_forgotten_when_the_clock_is_set_back(bench: Bench) -> None:
    """Otherwise the key would have no new budget until then."""
    key = key_with(tokens_per_day=100, tokens_per_month=200)
    bench.clock.step(400 * DAY)
    await bench.use(key, 100, prompt_tokens=100)
    bench.clock.step(-400 * DAY)
    await bench.use(key, 100, prompt_tokens=100)
    assert await bench.left(key, 200) == 100
    assert await bench.left(key, 300, "tokens_per_month") == 200


async def a_clock_that_is_set_back_over_midnight_changes_no_budget(bench: Bench) -> None:
    key = key_with(tokens_per_day=100)
    bench.clock.step(DAY)
    await bench.use(key, 60, prompt_tokens=60)
    for seconds in (-3600, 3600):
        bench.clock.step(seconds)
        assert await bench.left(key, 100) == 40
    bench.clock.step(DAY)
    await bench.use(key, 100)


async def a_clock_that_is_set_back_over_midnight_shortens_no_wait(bench: Bench) -> None:
    day, month = key_with("day", tokens_per_day=10), key_with("month", tokens_per_month=10)
    for key in (day, month):
        await bench.use(key, 0, prompt_tokens=10)
    bench.clock.step(-3600)
    assert (await bench.refusal(day, 1)).headers["retry-after"] == str(DAY + 3600)
    assert (await bench.refusal(month, 1)).headers["retry-after"] == str(31 * DAY + 3600)
    for key, wait in ((day, DAY + 3600), (month, 30 * DAY)):
        bench.clock.advance(wait - 1)
        assert (await bench.refusal(key, 1)).headers["retry-after"] == "1"
        bench.clock.advance(1)
        await bench.use(key, 10)


CASES: tuple[Case, ...] = (
    a_caller_without_a_key_or_limits_is_never_refused,
    the_request_after_the_last_one_of_a_minute_waits_for_the_refill,
    a_refused_request_counts_for_nothing,
    tokens_are_reserved_while_a_request_runs_and_then_settled,
    the_headers_count_the_request_itself,
    a_bound_beyond_what_can_be_stored_is_a_large_one,
    a_bound_beyond_a_limit_is_admitted_alone,
    a_bound_beyond_a_rate_takes_no_more_than_the_rate,
    the_counted_prompt_replaces_the_estimate,
    the_counted_prompt_replaces_what_the_estimate_reserves_of_budgets,
    a_bound_that_was_too_low_is_charged_in_full,
    requests_at_once_are_limited,
    an_exhausted_budget_of_a_day_is_no_reason_to_retry,
    an_exhausted_budget_of_a_month_is_no_reason_to_retry,
    a_budget_that_is_soon_renewed_is_a_reason_to_retry,
    an_exhausted_budget_refuses_a_request_without_tokens,
    a_request_is_charged_to_the_day_in_which_it_ends,
    earlier_use_is_restored_at_the_start,
    changed_limits_apply_to_the_next_request,
    keys_do_not_affect_each_other,
    a_failed_request_gives_back_what_it_holds,
    tokens_of_a_request_that_outlives_the_refill_are_not_given_back_twice,
    tokens_that_have_been_refilled_are_not_given_back_from_those_of_others,
    a_month_is_one_of_the_calendar,
    rates_refill_after_the_clock_was_set_back,
    charges_of_days_to_come_are_forgotten_when_the_clock_is_set_back,
    a_clock_that_is_set_back_over_midnight_changes_no_budget,
    a_clock_that_is_set_back_over_midnight_shortens_no_wait,
)
