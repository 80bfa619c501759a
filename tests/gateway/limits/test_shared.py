"""Gateways on one database count as one, also when one of them dies or is cut off."""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.lowlevel
import psycopg
import pytest
from typing_extensions import override

from gateway.limits import ledger_queue, shared_schema
from gateway.limits.shared_limiter import SharedLimiter
from gateway.middleware.errors import RefusedError
from gateway.storage.database import Batches, Call, Rows, StorageError
from gateway.storage.postgres import PostgresDatabase
from gateway.stores import open_limiter
from tests.backends import ON_TRIO
from tests.gateway.application import settings_for
from tests.gateway.limits import killed_gateway
from tests.gateway.limits.conformance import CASES, DAY, Case, left_per_minute
from tests.gateway.limits.shared import LEASE, benches, limiter_on, run_twice, total, until_settled
from tests.gateway.limits.virtual import VirtualClock, key_with, record_of
from tests.repeat import thorough

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
REQUESTS = 200
"""Requests of the process that is not killed."""
KEY = key_with(tokens_per_day=1000, concurrent_requests=2, tokens_per_minute=600)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_limiter_in_postgresql_does_the_same_as_in_memory(url: str, case: Case) -> None:
    async with benches(url) as (bench,):
        await case(bench)


async def test_the_store_of_the_keys_decides_who_shares_the_limits(url: str, tmp_path: Path) -> None:
    assert await open_limiter(settings_for()) is None
    assert await open_limiter(settings_for(keys=str(tmp_path / "keys.db"))) is None
    limiter = await open_limiter(settings_for(keys=url))
    assert limiter is not None
    async with limiter.open():
        assert isinstance(limiter, SharedLimiter)


async def test_two_gateways_count_as_one(url: str) -> None:
    async with benches(url, 2) as (one, other):
        async with one.opened(KEY, 100, prompt_tokens=30), other.opened(KEY, 200, prompt_tokens=40):
            assert total(url) == (0, 300, 2)
            assert (await one.refusal(KEY, 1)).param == "concurrent_requests"
            assert (await other.refusal(key_with(tokens_per_day=1000), 701)).param == "tokens_per_day"
            assert (await other.refusal(key_with(tokens_per_minute=600), 301)).param == "tokens_per_minute"
        await one.settled()
        await other.settled()
        assert total(url) == (70, 0, 0)


async def test_requests_of_a_silent_gateway_end_with_their_lease_and_are_charged_once(url: str) -> None:
    async with (
        benches(url, 2) as (silent, other),
        silent.opened(KEY, 100, prompt_tokens=30),
        silent.opened(KEY, 100, prompt_tokens=30),
    ):
        other.clock.advance(LEASE - 0.001)
        assert (await other.refusal(KEY, 1)).param == "concurrent_requests"
        other.clock.advance(0.001)
        await other.use(KEY, 50, prompt_tokens=5)
        assert total(url) == (205, 0, 0), "what the silent one reserved, and the charge of the other"
        await other.use(KEY, 50, prompt_tokens=5)
        assert total(url) == (210, 0, 0)


async def test_a_charge_of_an_earlier_day_stays_there(url: str) -> None:
    async with benches(url, 2) as (late, other):
        async with late.opened(KEY, 100, prompt_tokens=30):
            other.clock.advance(LEASE)
            await other.use(KEY, 50)
            other.clock.advance(DAY)
        await late.settled()
        assert total(url) == (0, 0, 0)
        assert await other.left(key_with(), 1000, "tokens_per_month") == 970


@pytest.mark.parametrize("lost", ["open", "expired", "settled"])
async def test_a_request_that_runs_again_elsewhere_is_not_refused_and_counts_once(url: str, lost: str) -> None:
    """Its first gateway may have died in the middle, long ago, or at its end; and it may come back."""
    key = key_with(concurrent_requests=1, requests_per_minute=1, tokens_per_minute=100, tokens_per_day=100)
    async with benches(url, 2) as (first, second):
        one, again = run_twice(key)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(first.limiter.admitted(one, 100))
            if lost == "settled":
                await stack.aclose()
                await first.settled()
            elif lost == "expired":
                first.clock.advance(LEASE)
            async with second.limiter.admitted(again, 90):
                assert total(url) == (0, 90, 1)
                assert left_per_minute(key, second) == (0, 60 if lost == "expired" else 10)
                await stack.aclose()
                await first.settled()
                assert total(url) == (0, 90, 1), "the first gateway has lost it"
        await second.settled()
        assert total(url) == (40, 0, 0)
        if lost != "expired":  # the rate has been refilled since
            assert (await second.refusal(key_with(tokens_per_minute=100), 61)).param == "tokens_per_minute"
        assert (await second.refusal(key_with(requests_per_minute=1))).param == "requests_per_minute"


async def test_a_request_that_runs_again_on_the_same_gateway_counts_once(url: str) -> None:
    async with benches(url) as (bench,):
        one, again = run_twice(KEY)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(bench.limiter.admitted(one, 100))
            async with bench.limiter.admitted(again, 100):
                await stack.aclose()
                await bench.settled()
        await bench.settled()
        assert total(url) == (40, 0, 0)


async def test_settled_reservations_are_removed_after_a_minute(url: str) -> None:
    async with benches(url) as (bench,):
        await bench.use(KEY, 50, prompt_tokens=5)
        bench.clock.advance(61)
        await bench.use(KEY, 50, prompt_tokens=5)
        with psycopg.connect(url) as connection:
            ((rows,),) = connection.execute("SELECT count(*) FROM limit_reservations").fetchall()
        assert rows == 1
        assert total(url) == (10, 0, 0)


async def test_the_end_of_a_response_can_wait_until_its_charge_is_stored(url: str) -> None:
    async with benches(url) as (bench,):
        async with bench.opened(KEY, 50, prompt_tokens=5):
            pass
        await bench.limiter.settled()
        assert total(url) == (5, 0, 0)


class LostAnswers(PostgresDatabase):
    """A database whose answers are lost after the work was done, some times in a row before each that arrives."""

    def __init__(self, url: str, in_a_row: int) -> None:
        super().__init__(url)
        self._in_a_row = in_a_row
        self._calls = 0

    @override
    async def batch(self, calls: Sequence[Call]) -> list[Rows]:
        answers = await super().batch(calls)
        self._calls += 1
        if self._calls % (self._in_a_row + 1):
            raise StorageError("the connection was lost")
        return answers


@pytest.mark.parametrize("in_a_row", [1, 2])
async def test_a_change_whose_answer_was_lost_is_not_counted_twice(
    url: str, monkeypatch: pytest.MonkeyPatch, in_a_row: int
) -> None:
    monkeypatch.setattr(ledger_queue, "RETRY_INTERVAL", 0.0)
    free, refused = key_with(), 0
    async with benches(url):
        limiter = limiter_on(LostAnswers(url, in_a_row), VirtualClock())
        async with limiter.open():
            for key in [free] * 5 + [KEY] * 5:
                try:
                    async with limiter.admitted(record_of(key, prompt_tokens=3), 10):
                        pass
                except RefusedError:
                    refused += 1
                await until_settled(limiter)
        assert total(url) == (3 * (10 - refused), 0, 0), "a refused one may have been admitted, and has given all back"
    assert bool(refused) == (in_a_row > 1)


class Down(Batches):
    """A database that fails, or does not answer, until it is up."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.up = False
        self.calls: list[Call] = []
        self._hangs = hangs

    @override
    async def create(self, statements: Sequence[str]) -> None:
        """Do nothing."""

    @override
    async def batch(self, calls: Sequence[Call]) -> list[Rows]:
        if not self.up and self._hangs:
            await anyio.sleep_forever()
        if not self.up:
            raise StorageError("no route to host")
        self.calls += calls
        return [[(0,)] for _ in calls]

    @override
    async def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("hangs", [False, True])
async def test_without_its_database_a_key_with_limits_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    monkeypatch.setattr(ledger_queue, "PATIENCE", 0.0 if hangs else 1000.0)
    database = Down(hangs=hangs)
    limiter = limiter_on(database, VirtualClock())
    with anyio.fail_after(10):
        async with limiter.open():
            for _ in range(2):
                with pytest.raises(RefusedError) as caught:
                    async with limiter.admitted(record_of(KEY), 10):
                        pass
            database.up = True
    problem = caught.value.problem
    assert (problem.status, problem.code, problem.headers["x-should-retry"]) == (503, "limits_unavailable", "true")


class Cancelling(Down):
    """A database that is up. A request is cancelled in the moment in which its admission is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.up = True
        self.request = anyio.CancelScope()

    @override
    async def batch(self, calls: Sequence[Call]) -> list[Rows]:
        answers = await super().batch(calls)
        self.request.cancel()
        return answers


async def test_a_request_that_is_cancelled_with_its_admission_gives_its_reservation_back() -> None:
    database, record = Cancelling(), record_of(KEY)
    limiter = limiter_on(database, VirtualClock())
    with anyio.fail_after(20):
        async with limiter.open():
            with database.request:
                async with limiter.admitted(record, 10):
                    pytest.fail("the request was not cancelled")
            await until_settled(limiter)
    assert [(statement, values[1]) for statement, values in database.calls] == [
        (shared_schema.ADMIT, record.id),
        (shared_schema.SETTLE, record.id),
    ]


async def test_requests_that_are_refused_while_the_database_is_down_leave_nothing_to_send() -> None:
    limiter = limiter_on(Down(), VirtualClock())
    with anyio.fail_after(20):
        async with limiter.open():
            for _ in range(5):
                with pytest.raises(RefusedError):
                    async with limiter.admitted(record_of(KEY), 10):
                        pass
            assert len(limiter._queue._changes) == 1, "only the first one was sent"


async def test_without_its_database_no_response_waits_for_its_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Down(hangs=True)
    limiter = limiter_on(database, VirtualClock())
    with anyio.fail_after(60):
        async with limiter.open():
            async with limiter.admitted(record_of(key_with()), 10):
                pass
            monkeypatch.setattr(ledger_queue, "PATIENCE", 0.0)
            await limiter.settled()
            database.up = True


async def test_without_its_database_other_keys_go_on_and_are_charged_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_queue, "RETRY_INTERVAL", 0.0)
    monkeypatch.setattr(ledger_queue, "CAPACITY", 6)
    database = Down()
    limiter = limiter_on(database, VirtualClock())
    async with limiter.open():
        for _ in range(5):
            async with limiter.admitted(record_of(key_with(), prompt_tokens=3), 10) as correct:
                correct(5)
        async with limiter.admitted(record_of(None), 10):
            await anyio.lowlevel.checkpoint()
        database.up = True
        await until_settled(limiter)
    assert len(database.calls) >= 6, "of two requests; the others met a queue that was full"
    settled = [values for statement, values in database.calls if "settle" in statement]
    assert [values[3] for values in settled] == [3, 3]


AUDIT = """CREATE TABLE audit (id TEXT PRIMARY KEY, charge BIGINT);
    CREATE FUNCTION audit() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO audit VALUES (NEW.id, NEW.day_tokens) ON CONFLICT (id) DO UPDATE SET charge = excluded.charge;
        RETURN NULL;
    END $$;
    CREATE TRIGGER audit AFTER INSERT OR UPDATE ON limit_reservations FOR EACH ROW EXECUTE FUNCTION audit()"""


@thorough
@ON_TRIO
async def test_totals_are_exact_when_one_of_two_processes_is_killed(url: str) -> None:
    async with benches(url):
        pass
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(AUDIT)
        hammer_and_kill(url)
        with anyio.fail_after(20):
            while total(url)[2]:
                connection.execute("SELECT limits_lock('key_1', NULL)")
                await anyio.sleep(0.05)
        rows = connection.execute("SELECT charge, count(*) FROM audit GROUP BY charge").fetchall()
    requests: dict[int, int] = dict(rows)
    assert requests.keys() <= {killed_gateway.CHARGE, killed_gateway.BOUND}
    assert requests[killed_gateway.CHARGE] >= REQUESTS
    assert total(url) == (sum(charge * number for charge, number in requests.items()), 0, 0)


def hammer_and_kill(url: str) -> None:
    """Send requests for one key from two processes, kill one of them meanwhile, and wait for the other."""
    command = [sys.executable, "-m", killed_gateway.__name__, url]
    with (
        subprocess.Popen([*command, "0"], cwd=ROOT, stdout=subprocess.PIPE) as killed,
        subprocess.Popen([*command, str(REQUESTS)], cwd=ROOT, stdout=subprocess.PIPE) as other,
    ):
        assert killed.stdout is not None
        killed.stdout.readline()
        killed.kill()
        assert other.wait(60) == 0
