"""Behaviour of the usage store on every kind of database. Each case gets the place of an empty database."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import date
from typing import Any

from gateway.usage.buffer import UsageBuffer
from gateway.usage.row import UsageRow
from gateway.usage.store import KeyUsage, UsageStore, usage_store
from tests.gateway.limits.virtual import JANUARY_2026, key_with, record_of

DAY = 86_400.0

Case = Callable[[str], Awaitable[None]]


def row(number: int, day: int = 1, **fields: Any) -> UsageRow:
    """Return a row of the given day of January 2026."""
    known = {"at": JANUARY_2026 + (day - 1) * DAY + 60, "day": f"2026-01-{day:02}", "key_id": "key_1", "model": "m"}
    return UsageRow(id=f"row-{number}", **{**known, **fields})


@asynccontextmanager
async def opened(place: str) -> AsyncIterator[UsageStore]:
    store = usage_store(place)
    try:
        await store.create()
        yield store
    finally:
        await store.close()


async def a_new_store_is_empty(place: str) -> None:
    async with opened(place) as store:
        assert await store.usage_by_key(0, 1e12) == []
        assert await store.charged(0, 1e12) == {}


async def rows_are_summed_by_day_key_and_model(place: str) -> None:
    rows = [
        row(1, prompt_tokens=10, cached_tokens=4, completion_tokens=3),
        row(2, prompt_tokens=5, completion_tokens=1),
        row(3, model="n", prompt_tokens=7),
        row(4, key_id="key_0", prompt_tokens=9),
        row(5, day=2, requests=3, prompt_tokens=30, cached_tokens=6, completion_tokens=300),
    ]
    async with opened(place) as store:
        await store.add(rows)
        assert await store.usage_by_key(JANUARY_2026, JANUARY_2026 + 2 * DAY) == [
            KeyUsage("key_0", "m", date(2026, 1, 1), 1, 9, 0, 0),
            KeyUsage("key_1", "m", date(2026, 1, 1), 2, 15, 4, 4),
            KeyUsage("key_1", "n", date(2026, 1, 1), 1, 7, 0, 0),
            KeyUsage("key_1", "m", date(2026, 1, 2), 3, 30, 6, 300),
        ]


async def a_period_includes_its_start_and_not_its_end(place: str) -> None:
    async with opened(place) as store:
        await store.add([row(number, at=float(number)) for number in range(1, 5)])
        (usage,) = await store.usage_by_key(2, 4)
        assert usage.requests == 2


async def charges_since_a_time_leave_out_reused_tokens(place: str) -> None:
    async with opened(place) as store:
        await store.add([row(1, prompt_tokens=100, cached_tokens=60, completion_tokens=7)])
        await store.add([row(2, day=2, prompt_tokens=1), row(3, day=2, key_id="", completion_tokens=5)])
        assert await store.charged(JANUARY_2026, 1e12) == {"key_1": 48, "": 5}
        assert await store.charged(JANUARY_2026 + DAY, 1e12) == {"key_1": 1, "": 5}


async def rows_that_are_written_twice_are_stored_once(place: str) -> None:
    async with opened(place) as store:
        await store.add([row(1, prompt_tokens=1), row(2, prompt_tokens=1)])
        await store.add([row(2, prompt_tokens=1), row(3, prompt_tokens=1)])
        assert await store.charged(0, 1e12) == {"key_1": 3}


async def gateways_store_a_row_for_each_request_whatever_its_id(place: str) -> None:
    """A client may choose the same request id twice, and a request that it sends again used the engine twice."""
    buffers = [UsageBuffer(capacity=10) for _ in range(2)]
    for buffer in buffers:
        buffer.add(record_of(key_with(), prompt_tokens=3), JANUARY_2026)
        buffer.add(record_of(key_with(), prompt_tokens=3), JANUARY_2026)
    async with opened(place) as one, opened(place) as other:
        for _ in range(2):  # as if the first answers were lost
            await one.add(buffers[0].first(10))
            await other.add(buffers[1].first(10))
        assert await one.charged(0, 1e12) == {"key_1": 12}


async def a_request_that_ran_again_elsewhere_counts_once(place: str) -> None:
    async with opened(place) as lost, opened(place) as other:
        await lost.add([row(1, prompt_tokens=3, outcome="failed"), row(2, prompt_tokens=3, outcome="finished")])
        await other.add([row(1, prompt_tokens=4, outcome="finished"), row(2, prompt_tokens=4, outcome="finished")])
        await lost.add([row(1, prompt_tokens=1, outcome="cancelled")])
        (usage,) = await other.usage_by_key(0, 1e12)
        assert (usage.requests, usage.prompt_tokens) == (2, 8)


async def a_store_keeps_its_rows(place: str) -> None:
    async with opened(place) as store:
        await store.add([row(1, prompt_tokens=1)])
    async with opened(place) as store:
        assert await store.charged(0, 1e12) == {"key_1": 1}


async def a_whole_batch_with_any_text_is_stored(place: str) -> None:
    rows = [row(number, model="'; DROP TABLE usage; -- é ?%s", prompt_tokens=2**40) for number in range(256)]
    async with opened(place) as store:
        await store.add(rows)
        (usage,) = await store.usage_by_key(0, 1e12)
        assert (usage.model, usage.prompt_tokens) == (rows[0].model, 256 * 2**40)


CASES: tuple[Case, ...] = (
    a_new_store_is_empty,
    rows_are_summed_by_day_key_and_model,
    a_period_includes_its_start_and_not_its_end,
    charges_since_a_time_leave_out_reused_tokens,
    rows_that_are_written_twice_are_stored_once,
    gateways_store_a_row_for_each_request_whatever_its_id,
    a_request_that_ran_again_elsewhere_counts_once,
    a_store_keeps_its_rows,
    a_whole_batch_with_any_text_is_stored,
)
