"""Ledgers in PostgreSQL over time: leases, periods, and a clock that goes back."""

import time

import psycopg
import psycopg.errors
import pytest

from gateway.limits.shared_limiter import SharedLimiter
from gateway.limits.shared_schema import RENEW
from gateway.storage.postgres import PostgresDatabase
from tests.gateway.limits.conformance import DAY, Bench
from tests.gateway.limits.shared import LEASE, benches, run_twice, total
from tests.gateway.limits.virtual import key_with

pytestmark = pytest.mark.anyio

KEY = key_with(tokens_per_day=1000, concurrent_requests=1)


async def renew(url: str, bench: Bench) -> None:
    """Renew the leases of a gateway, as its queue does."""
    assert isinstance(bench.limiter, SharedLimiter)
    database = PostgresDatabase(url)
    now, lease = (round(seconds * 1_000_000) for seconds in (bench.clock.time, LEASE))
    await database.batch([(RENEW, (now, lease, bench.limiter._gateway))])
    await database.close()


async def test_a_renewed_lease_keeps_the_requests_of_its_gateway_and_no_others(url: str) -> None:
    other_key = key_with("key_2", concurrent_requests=1)
    async with benches(url, 3) as (alive, silent, other), alive.opened(KEY, 100), silent.opened(other_key, 100):
        other.clock.advance(LEASE - 1)
        await renew(url, alive)
        other.clock.advance(LEASE - 1)
        assert (await other.refusal(KEY, 1)).param == "concurrent_requests"
        await other.use(other_key, 1)
        other.clock.advance(1)
        await other.use(KEY, 1)


async def test_a_renewal_does_not_wait_for_a_gateway_that_ends_a_request_meanwhile(url: str) -> None:
    """The other one may need the row of another key, which the renewal has locked."""
    other_key = key_with("key_2", concurrent_requests=1)
    async with benches(url, 2) as (late, other), late.opened(KEY, 100), late.opened(other_key, 100):
        other.clock.advance(LEASE)
        with psycopg.connect(url) as connection:
            connection.execute("SELECT limits_lock('key_1', %s)", (round(other.clock.time * 1_000_000),))
            await renew(url, late)
        assert total(url) == (100, 0, 0)
        assert (await other.refusal(other_key)).param == "concurrent_requests"


@pytest.mark.parametrize("corrected", [False, True])
async def test_a_gateway_that_was_cut_off_replaces_the_charge_of_its_lease(url: str, corrected: bool) -> None:
    async with benches(url, 2) as (late, other):
        async with late.opened(KEY, 100, prompt_tokens=30) as correct:
            other.clock.advance(LEASE)
            await other.use(KEY, 50, prompt_tokens=5)
            if corrected:
                correct(50)
                await late.settled()
            assert total(url) == (105, 0, 0)
        await late.settled()
        assert total(url) == (35, 0, 0)


async def test_a_gateway_that_lost_a_request_to_another_does_not_correct_it(url: str) -> None:
    async with benches(url, 2) as (first, second):
        one, again = run_twice(KEY)
        async with first.limiter.admitted(one, 100) as correct, second.limiter.admitted(again, 90):
            correct(10)
            await first.settled()
            assert total(url) == (0, 90, 1)


@pytest.mark.parametrize("corrected", [False, True])
async def test_a_lease_that_ends_is_charged_to_each_budget_by_its_own_limit(url: str, corrected: bool) -> None:
    key = key_with(tokens_per_day=50, tokens_per_month=70)
    async with benches(url, 2) as (silent, other), silent.opened(key, 100) as correct:
        if corrected:
            correct(200)
            await silent.settled()
        other.clock.advance(LEASE)
        assert await other.left(key, 80) == 30
        assert await other.left(key, 1000, "tokens_per_month") == 930


async def test_a_request_that_runs_again_gives_back_only_what_its_own_day_and_month_were_charged(url: str) -> None:
    key = key_with(tokens_per_month=1000)
    async with benches(url, 2) as (first, second):
        first.clock.advance(31 * DAY - 1)
        one, again = run_twice(key)
        await first.run(one, 100)
        first.clock.advance(2)
        await second.run(again, 100)
        assert await second.left(key, 1000, "tokens_per_month") == 960
        assert await second.left(key, 1000) == 960


async def test_a_charge_after_the_lease_belongs_to_the_day_and_month_in_which_the_lease_ended(url: str) -> None:
    key = key_with(tokens_per_month=1000)
    async with benches(url, 2) as (late, other):
        late.clock.advance(31 * DAY - LEASE - 1)
        one, again = run_twice(key)
        async with late.limiter.admitted(one, 100):
            late.clock.advance(LEASE)
            await other.use(key, 0)
            late.clock.advance(2)
        await late.settled()
        await other.run(again, 100)
        assert await other.left(key, 1000) == 960
        assert await other.left(key, 1000, "tokens_per_month") == 960


@pytest.mark.parametrize(("seconds", "charged"), [(60, 40), (60.001, 70)])
async def test_a_request_counts_once_if_it_runs_again_within_a_minute_of_its_end(
    url: str, seconds: float, charged: int
) -> None:
    async with benches(url) as (bench,):
        one, again = run_twice(KEY)
        for record in (one, again):
            await bench.run(record, 100)
            bench.clock.advance(seconds)
        assert total(url) == (charged, 0, 0)


async def test_use_that_a_ledger_has_counted_is_not_restored(url: str) -> None:
    async def charged(_since: float, _until: float) -> dict[str, int]:
        return {"key_1": 500}

    async with benches(url) as (bench,):
        await bench.use(KEY, 50, prompt_tokens=5)
        await bench.limiter.restore(charged)
        assert total(url) == (5, 0, 0)


async def test_requests_without_a_key_have_no_ledger(url: str) -> None:
    async def charged(_since: float, _until: float) -> dict[str, int]:
        return {"key_1": 500, "": 70}

    async with benches(url) as (bench,):
        await bench.limiter.restore(charged)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT key_id FROM limit_ledgers").fetchall() == [("key_1",)]


async def test_a_clock_that_goes_back_begins_no_period_again(url: str) -> None:
    async with benches(url) as (bench,):
        await bench.use(KEY, 50, prompt_tokens=5)
        bench.clock.step(-1)
        assert await bench.left(KEY, 1000) == 995
        assert await bench.left(KEY, 1000, "tokens_per_month") == 995


async def test_a_clock_that_goes_back_makes_no_wait_longer(url: str) -> None:
    key = key_with(requests_per_minute=1)
    async with benches(url) as (bench,):
        await bench.use(key, 0)
        bench.clock.step(-3600)
        assert (await bench.refusal(key)).headers["retry-after"] == "60"
        bench.clock.advance(60)
        await bench.use(key, 0)


async def test_a_ledger_is_changed_by_one_gateway_at_a_time(url: str) -> None:
    lock = "SELECT limits_lock('key_1', NULL)"
    async with benches(url):
        with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url) as other:
            one.execute(lock)  # the ledger exists now, and its periods have begun
            with one.transaction():
                one.execute(lock)
                other.execute("SET lock_timeout = 10")
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    other.execute(lock)


async def test_the_clock_of_the_database_counts_in_microseconds(url: str) -> None:
    async with benches(url):
        with psycopg.connect(url) as connection:
            ((now,),) = connection.execute("SELECT limits_time(NULL)").fetchall()
    assert abs(now / 1_000_000 - time.time()) < DAY
