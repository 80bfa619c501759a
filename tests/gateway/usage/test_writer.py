"""The writer: it never makes a request wait, and loses no charge."""

import logging
from collections.abc import Sequence
from typing import cast

import anyio
import anyio.lowlevel
import pytest

from gateway.app import Equipment
from gateway.storage.database import StorageError
from gateway.stores import OpenStores
from gateway.usage import writer as usage_writer
from gateway.usage.row import UsageRow
from gateway.usage.store import UsageStore, usage_store
from gateway.usage.writer import BATCH, UsageWriter
from tests.gateway.application import gateway_of
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.limits.virtual import key_with, record_of

pytestmark = pytest.mark.anyio

NEVER = 1e9
"""An interval that does not pass in a test."""


class ScriptedStore:
    """A store in memory. While `full`, it fails; while `slow`, it does not answer."""

    def __init__(self) -> None:
        self.rows: dict[str, UsageRow] = {}
        self.full = False
        self.attempts = 0
        self.answers = anyio.Event()
        self.answers.set()
        self.attempted = anyio.Event()
        self.closed = False

    def as_store(self) -> UsageStore:
        return cast("UsageStore", self)

    async def add(self, rows: Sequence[UsageRow]) -> None:
        self.attempts += 1
        self.attempted.set()
        await self.answers.wait()
        if self.full:
            raise StorageError("database or disk is full")
        self.rows |= {row.id: row for row in rows}

    async def close(self) -> None:
        self.closed = True

    @property
    def requests(self) -> int:
        return sum(row.requests for row in self.rows.values())


def observe(writer: UsageWriter, count: int) -> None:
    for _ in range(count):
        writer.observe(record_of(key_with(), prompt_tokens=3))


async def test_all_rows_are_stored_when_it_is_closed(place: str) -> None:
    store = usage_store(place)
    await store.create()
    writer = UsageWriter(store, interval=NEVER)
    async with writer.open():
        observe(writer, 2 * BATCH + 7)
    assert await store.charged(0, 1e12) == {"key_1": (2 * BATCH + 7) * 3}
    await store.close()


async def test_a_request_that_has_only_begun_has_no_row() -> None:
    store = ScriptedStore()
    writer = UsageWriter(store.as_store())
    async with writer.open():
        writer.observe(record_of(key_with(), outcome=None))
    assert not store.rows
    assert store.closed


async def test_rows_are_stored_after_the_interval() -> None:
    store = ScriptedStore()
    writer = UsageWriter(store.as_store(), interval=0)
    async with writer.open():
        observe(writer, 1)
        with anyio.fail_after(10):
            await store.attempted.wait()
            await anyio.wait_all_tasks_blocked()
        assert store.requests == 1
        assert writer.waiting == 0


async def test_a_whole_batch_does_not_wait_for_the_interval() -> None:
    store = ScriptedStore()
    writer = UsageWriter(store.as_store(), interval=NEVER)
    async with writer.open():
        observe(writer, BATCH - 1)
        await anyio.wait_all_tasks_blocked()
        assert store.attempts == 0
        observe(writer, 1)
        await anyio.wait_all_tasks_blocked()
        assert store.requests == BATCH


async def test_an_idle_writer_does_nothing() -> None:
    store = ScriptedStore()
    async with UsageWriter(store.as_store(), interval=0).open():
        await anyio.wait_all_tasks_blocked()
    assert store.attempts == 0


async def test_a_slow_disk_makes_no_request_wait() -> None:
    store = ScriptedStore()
    store.answers = anyio.Event()
    writer = UsageWriter(store.as_store(), interval=NEVER, capacity=BATCH)
    async with writer.open():
        observe(writer, BATCH)
        await store.attempted.wait()
        observe(writer, 10 * BATCH)
        assert writer.waiting == BATCH + 1
        store.answers.set()
    assert store.requests == 11 * BATCH


async def test_a_full_disk_loses_no_charge_and_is_reported_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(usage_writer, "RETRY_INTERVAL", 0.0)
    store = ScriptedStore()
    store.full = True
    writer = UsageWriter(store.as_store(), interval=0, capacity=BATCH)
    async with writer.open():
        observe(writer, 5 * BATCH)
        with anyio.fail_after(10):
            while store.attempts < 3:
                await anyio.lowlevel.checkpoint()
        store.full = False
        with anyio.fail_after(10):
            while writer.waiting:
                await anyio.lowlevel.checkpoint()
    assert store.requests == 5 * BATCH
    assert sum(row.charged_tokens for row in store.rows.values()) == 5 * BATCH * 3
    assert [record.message for record in caplog.records] == [
        "cannot store the usage of requests, which waits in memory: database or disk is full",
        "the usage of requests is stored again",
    ]


async def test_the_end_of_a_response_can_wait_until_its_row_is_stored() -> None:
    store = ScriptedStore()
    store.answers = anyio.Event()
    writer = UsageWriter(store.as_store(), interval=NEVER)
    seen: list[int] = []

    async def wait() -> None:
        await writer.stored()
        seen.append(store.requests)

    async with writer.open(), anyio.create_task_group() as tasks:
        await writer.stored()
        observe(writer, 2)
        tasks.start_soon(wait)
        await store.attempted.wait()
        observe(writer, 1)
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert seen == []
        store.answers.set()
    assert seen[0] >= 2
    assert seen[1:] == [3]


async def test_a_gateway_can_wait_until_what_it_has_served_is_stored() -> None:
    store = ScriptedStore()
    writer = UsageWriter(store.as_store(), interval=NEVER)
    gateway = gateway_of(FakeEngine(), equipment=Equipment(stores=OpenStores(usage=writer)))
    async with writer.open():
        observe(writer, 1)
        await gateway.settled()
        assert store.requests == 1
    await gateway_of(FakeEngine()).settled()


async def test_no_response_waits_for_a_store_that_fails() -> None:
    store = ScriptedStore()
    store.full = True
    writer = UsageWriter(store.as_store(), interval=NEVER)
    async with writer.open():
        observe(writer, 1)
        await writer.stored()
        assert store.attempts == 1
        await writer.stored()
        assert writer.waiting == 1


async def test_no_response_waits_long_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_writer, "PATIENCE", 0.0)
    store = ScriptedStore()
    store.answers = anyio.Event()
    writer = UsageWriter(store.as_store(), interval=NEVER)
    async with writer.open():
        observe(writer, 1)
        await writer.stored()
        assert writer.waiting == 1
        store.answers.set()


async def test_rows_that_cannot_be_stored_at_the_end_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    store = ScriptedStore()
    store.full = True
    writer = UsageWriter(store.as_store(), interval=NEVER)
    async with writer.open():
        observe(writer, 5)
    assert caplog.records[-1].message == "lost the usage of 5 requests: 15 tokens"
    assert store.closed


async def test_a_stop_in_the_middle_of_a_transaction_stores_each_row_once(place: str) -> None:
    store = usage_store(place)
    await store.create()
    writer = UsageWriter(store, interval=0)
    async with writer.open():
        observe(writer, 3 * BATCH)
        await anyio.lowlevel.checkpoint()
    assert await store.charged(0, 1e12) == {"key_1": 9 * BATCH}
    await store.close()
