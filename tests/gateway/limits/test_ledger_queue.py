"""The queue of changes to shared ledgers: what is sent to the database, in which batches, and what when it fails."""

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from gateway.limits import ledger_queue, shared_schema
from gateway.limits.ledger_queue import BATCH, Change, LedgerQueue, LedgersUnavailableError
from gateway.limits.shared_limiter import SharedLimiter
from gateway.storage.database import Batches, Call, Rows, StorageError
from tests.gateway.limits.virtual import VirtualClock, key_with, record_of

pytestmark = pytest.mark.anyio

GUARD = 20


class Recorded(Batches):
    """A database that keeps what it is sent. It fails while it is down, and answers only while it is open."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.calls: list[Call] = []
        self.down = False
        self.open = anyio.Event()
        self.open.set()

    @override
    async def create(self, statements: Sequence[str]) -> None:
        """Do nothing."""

    @override
    async def batch(self, calls: Sequence[Call]) -> list[Rows]:
        await anyio.lowlevel.checkpoint()
        await self.open.wait()
        self.calls += calls
        self.batches.append([statement for statement, _ in calls])
        if self.down:
            raise StorageError("no route to host")
        return [[(None, 0, 0, 0, 0)] for _ in calls]

    @override
    async def close(self) -> None:
        """Do nothing."""


def change(name: str, *, key: str = "key", reservation: str = "", begins: bool = False) -> Change:
    return Change(key, reservation or name, (name, ()), lambda _rows: None, begins=begins)


async def no_pause(_seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


async def test_many_changes_are_sent_together_in_the_order_of_their_keys() -> None:
    """All gateways lock the ledgers in this order, so that none waits for another one that waits for it."""
    database = Recorded()
    queue = LedgerQueue(database, "gateway_1")
    for number in range(BATCH + 6):
        queue.add(change(f"{number:03}", key=f"key_{99 - number}"))
    async with queue.open():
        await queue.emptied()
    assert [len(batch) for batch in database.batches] == [BATCH, 6]
    assert all(batch == sorted(batch, reverse=True) for batch in database.batches)


async def test_the_changes_of_one_key_keep_their_order() -> None:
    database = Recorded()
    queue = LedgerQueue(database, "gateway_1")
    for name in "cab":
        queue.add(change(name))
    async with queue.open():
        await queue.emptied()
    assert database.batches == [["c", "a", "b"]]


async def test_a_reservation_is_not_ended_in_the_batch_that_makes_it() -> None:
    """The batch may be repeated, and would make it a second time."""
    database = Recorded()
    queue = LedgerQueue(database, "gateway_1")
    for name, begins in (("begin 1", True), ("begin 2", True), ("correct 1", False), ("settle 1", False)):
        queue.add(change(name, reservation=name[-1], begins=begins))
    async with queue.open():
        await queue.emptied()
        assert database.batches == [["begin 1", "begin 2"], ["correct 1", "settle 1"]], "all were waited for"


async def test_a_request_without_limits_is_admitted_and_settled_in_two_batches() -> None:
    database = Recorded()
    limiter = SharedLimiter(database, clock=VirtualClock())
    async with limiter.open():
        async with limiter.admitted(record_of(key_with()), 10):
            pass
        await limiter.settled()
        await limiter.settled()  # with an empty queue
    assert database.batches == [[shared_schema.ADMIT], [shared_schema.SETTLE]]


@pytest.mark.parametrize("down", [False, True])
async def test_what_waits_at_the_end_is_sent_or_reported_also_by_a_cancelled_owner(
    down: bool, caplog: pytest.LogCaptureFixture
) -> None:
    database = Recorded()
    database.down = down
    queue = LedgerQueue(database, "gateway_1")
    with anyio.CancelScope() as scope:
        async with queue.open():
            queue.add(change("last"))
            scope.cancel()
    assert database.batches == [["last"]] * (2 if down else 1)
    assert ("1 changes of the limits of keys are lost" in caplog.text) == down


async def test_a_change_that_was_given_up_is_not_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    database, undone = Recorded(), list[str]()
    database.open = anyio.Event()
    queue = LedgerQueue(database, "gateway_1")
    with anyio.fail_after(GUARD):
        async with queue.open():
            queue.add(change("first"))
            await anyio.wait_all_tasks_blocked()
            monkeypatch.setattr(ledger_queue, "PATIENCE", 0.0)
            with pytest.raises(LedgersUnavailableError):
                await queue.make(change("late"), lambda: undone.append("late"))
            database.open.set()
    assert (database.batches, undone) == ([["first"]], ["late"])


async def test_charges_are_not_waited_for_longer_because_an_admission_behind_them_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_queue, "PATIENCE", 1000.0)
    database = Recorded()
    database.open = anyio.Event()
    queue = LedgerQueue(database, "gateway_1")
    with anyio.fail_after(GUARD):
        async with queue.open(), anyio.create_task_group() as tasks:
            queue.add(change("charge"))
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as admissions:
                admissions.start_soon(queue.make, change("admission"), lambda: None)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(queue.emptied)
                await anyio.wait_all_tasks_blocked()
                admissions.cancel_scope.cancel()
            database.open.set()
    assert database.batches == [["charge"]]


async def test_leases_are_renewed_three_times_in_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 2:
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", pause)
    database = Recorded()
    async with LedgerQueue(database, "gateway_1", lease=30.0).open():
        await anyio.wait_all_tasks_blocked()
    assert pauses == [10.0] * 3
    assert database.calls == [(shared_schema.RENEW, (None, 30_000_000, "gateway_1"))] * 2


async def test_an_outage_is_known_from_a_failed_renewal_and_over_without_a_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(anyio, "sleep", no_pause)
    caplog.set_level("INFO")
    database = Recorded()
    database.down = True
    queue = LedgerQueue(database, "gateway_1")
    probe, _ = shared_schema.PROBE
    with anyio.fail_after(GUARD):
        async with queue.open():
            while [probe] not in database.batches:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(LedgersUnavailableError):
                await queue.make(change("refused"), pytest.fail)
            database.down = False
            while "can be read again" not in caplog.text:
                await anyio.lowlevel.checkpoint()
            await queue.make(change("made"), pytest.fail)
    assert ["made"] in database.batches
    assert ["refused"] not in database.batches


async def test_only_the_first_failure_may_be_that_of_an_old_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    database, pauses = Recorded(), list[int]()

    async def pause(seconds: float) -> None:
        if seconds != ledger_queue.RETRY_INTERVAL or len(pauses) == 2:
            await anyio.sleep_forever()
        pauses.append(len(database.batches))
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", pause)
    database.down = True
    queue = LedgerQueue(database, "gateway_1")
    queue.add(change("kept"))
    with anyio.fail_after(GUARD):
        async with queue.open():
            await anyio.wait_all_tasks_blocked()
            assert (pauses, len(database.batches)) == ([2, 3], 4)
            monkeypatch.setattr(ledger_queue, "PATIENCE", 1000.0)
            await queue.emptied()
            database.down = False
    assert database.batches == [["kept"]] * 5
