"""Usage of the whole program: each request has one row, charged for what was computed until its client left."""

import signal
import sqlite3
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from gateway.limits.memory_limiter import MemoryLimiter
from gateway.usage.store import usage_store
from gateway.usage.writer import UsageWriter
from tests.program import must_end, serving_program
from tests.system.served import GUARD, LONG_PROMPT, MANY, PASS, Served, completion, serving

pytestmark = pytest.mark.anyio

PROMPT = "abc" * 40


def rows_in(path: Path) -> dict[str, dict[str, Any]]:
    """Return all rows by their request ids."""
    with sqlite3.connect(path) as database:
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute("SELECT * FROM usage")]
    database.close()
    return {row["request_id"]: row for row in rows}


def charge_of(row: dict[str, Any]) -> int:
    charge: int = row["prompt_tokens"] - row["cached_tokens"] + row["completion_tokens"]
    return charge


async def leave(served: Served, state: str, **body: Any) -> None:
    """Send a request, and hang up in a state of its slot."""
    client, steps = served.client(), (await served.metrics()).steps
    await client.send(completion(state, **body))
    await served.until_in(state, state)
    await served.until(lambda _, metrics: metrics.steps > steps + 2)
    client.close()
    await served.until_idle()


async def leave_queue(served: Served) -> None:
    """Fill both slots, and hang up in the queue."""
    holders = [served.client() for _ in range(2)]
    for number, holder in enumerate(holders):
        await holder.send(completion(f"holds-{number}", max_tokens=MANY, stream=True))
        await served.until_in("decode", f"holds-{number}")
    waiter = await served.send(completion("queued", max_tokens=5))
    await served.until(lambda _, metrics: metrics.waiting == 1)
    waiter.close()
    await served.until(lambda _, metrics: metrics.waiting == 0)
    for holder in holders:
        holder.close()
    await served.until_idle()


def limiter_of(served: Served) -> MemoryLimiter:
    limiter = served.gateway.limiter
    assert isinstance(limiter, MemoryLimiter)
    return limiter


async def test_a_request_is_charged_for_what_was_computed_whatever_its_phase(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    store = usage_store(str(path))
    await store.create()
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0, usage=UsageWriter(store)) as served:
        for name in ("whole", "again"):
            assert (await served.answer(completion(name, prompt=PROMPT, max_tokens=7))).status == 200
        assert (await served.answer(completion("wrong", prompt=[10**9]))).status == 400
        await leave(served, "prefill", prompt=LONG_PROMPT, cache_prompt=False)
        await leave(served, "decode", prompt="ab", max_tokens=MANY)
        await leave_queue(served)
        metrics = await served.until_idle()
        await served.connections_fall_to(0)
        ledger = limiter_of(served).ledger("")
        now = limiter_of(served).clock().time
        charged = 10**9 - ledger.day.remaining(10**9, now)
        assert ledger.running == 0
    rows = rows_in(path)
    ends = {name: (row["outcome"], row["phase"], row["cause"]) for name, row in rows.items()}
    left = ("client_left",)
    assert ends == {
        "whole": ("finished", "done", ""),
        "again": ("finished", "done", ""),
        "prefill": ("cancelled", "prefill", *left),
        "decode": ("cancelled", "decode", *left),
        "queued": ("cancelled", "queued", *left),
        "holds-0": ("cancelled", "decode", *left),
        "holds-1": ("cancelled", "decode", *left),
    }
    assert charge_of(rows["whole"]) == len(PROMPT) + 7
    assert rows["again"]["cached_tokens"] > 0
    assert charge_of(rows["queued"]) == 0
    assert 0 < charge_of(rows["prefill"]) < len(LONG_PROMPT)
    assert rows["prefill"]["completion_tokens"] == 0
    total = sum(map(charge_of, rows.values()))
    assert total == metrics.computed_prompt_tokens + metrics.generated_tokens
    assert charged == total


async def test_budgets_are_restored_after_a_restart(tmp_path: Path) -> None:
    used = []
    for _ in range(2):
        store = usage_store(str(tmp_path / "usage.db"))
        await store.create()
        async with serving(seconds_per_pass=PASS, usage=UsageWriter(store)) as served:
            assert (await served.answer(completion("whole", prompt="abc", max_tokens=7))).status == 200
            ledger, now = limiter_of(served).ledger(""), limiter_of(served).clock().time
            await served.connections_fall_to(0)
            used.append((10**9 - ledger.day.remaining(10**9, now), 10**9 - ledger.month.remaining(10**9, now)))
    assert used == [(10, 10), (20, 20)]


def test_a_graceful_stop_of_the_program_stores_every_row(tmp_path: Path) -> None:
    path, names = tmp_path / "usage.db", [f"ask-{number}" for number in range(20)]
    with serving_program("--usage", str(path)) as (process, port), must_end(process.pid):
        connection = HTTPConnection("127.0.0.1", port, timeout=GUARD)
        for name in names:
            connection.request("POST", "/v1/completions", b'{"prompt":"a","max_tokens":1}', {"x-request-id": name})
            assert connection.getresponse().read().startswith(b"{")
        connection.close()
        process.send_signal(signal.SIGTERM)
    assert rows_in(path).keys() == set(names)
