"""The keys of a running server: found at once, and never older than a second."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from gateway.keys import ring as ring_module
from gateway.keys.key import Key, KeyLimits
from gateway.keys.ring import KeyRing, open_ring
from gateway.keys.secret import hash_of
from gateway.keys.store import StoredKey
from tests.gateway.keys.memory_store import MemoryKeyStore

pytestmark = pytest.mark.anyio

ALICE = Key(id="key_1", name="alice")


class Clock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._moved = anyio.Event()

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        end = self.time + seconds
        while self.time < end:
            await self._moved.wait()

    async def advance(self, seconds: float) -> None:
        """Move the time, and wait until all that it wakes has come to rest."""
        self.time += seconds
        self._moved.set()
        self._moved = anyio.Event()
        await anyio.wait_all_tasks_blocked()


@asynccontextmanager
async def running(store: MemoryKeyStore, clock: Clock, *given: str) -> AsyncIterator[KeyRing]:
    """Run a loaded ring."""
    ring = KeyRing(given, store, now=clock.now, sleep=clock.sleep)
    await ring.load()
    async with ring.open():
        await anyio.wait_all_tasks_blocked()
        yield ring


async def test_keys_of_the_command_line_and_of_the_store_are_found() -> None:
    store, clock = MemoryKeyStore(), Clock()
    await store.add(ALICE, hash_of("sk-alice"))
    async with running(store, clock, "one", "two") as ring:
        assert ring.find("sk-alice") == ALICE
        assert ring.find("one") == Key(id="api-key-1", name="api-key-1")
        assert ring.find("two") == Key(id="api-key-2", name="api-key-2")
        for wrong in ("", "sk-alic", "sk-alice ", "ONE", hash_of("sk-alice"), "key_1", "ünï", "\xff"):
            assert ring.find(wrong) is None


async def test_every_change_is_seen_within_a_second() -> None:
    store, clock = MemoryKeyStore(), Clock()
    async with running(store, clock) as ring:
        await store.add(ALICE, hash_of("sk-1"))
        await clock.advance(0.99)
        assert ring.find("sk-1") == ALICE

        limited = replace(ALICE, limits=KeyLimits(tokens_per_minute=5), models=frozenset({"a"}), weight=2.0)
        await store.edit(ALICE.id, lambda _: limited)
        await clock.advance(0.99)
        assert ring.find("sk-1") == limited

        await store.rotate(ALICE.id, hash_of("sk-2"))
        await clock.advance(0.99)
        assert (ring.find("sk-1"), ring.find("sk-2")) == (None, limited)

        await store.revoke(ALICE.id)
        await clock.advance(0.99)
        assert ring.find("sk-2") is None


async def test_a_key_is_refused_from_its_expiry_on() -> None:
    store, clock = MemoryKeyStore(), Clock()
    await store.add(replace(ALICE, expires_at=1001.0), hash_of("sk-1"))
    async with running(store, clock) as ring:
        clock.time = 1000.999
        assert ring.find("sk-1") is not None
        clock.time = 1001.0
        assert ring.find("sk-1") is None


async def test_the_keys_are_read_only_after_a_change() -> None:
    store, clock = MemoryKeyStore(), Clock()
    async with running(store, clock):
        for _ in range(10):
            await clock.advance(1)
        assert store.reads == 1
        await store.add(ALICE, hash_of("sk-1"))
        await clock.advance(1)
        await clock.advance(1)
        assert store.reads == 2


async def test_without_the_store_the_last_keys_are_served_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    store, clock = MemoryKeyStore(), Clock()
    await store.add(ALICE, hash_of("sk-1"))
    async with running(store, clock) as ring:
        for _ in range(2):
            store.failure = "disk I/O error"
            await store_lost(ring, clock)
            store.failure = None
            await clock.advance(1)
        await store.revoke(ALICE.id)
        await clock.advance(1)
        assert ring.find("sk-1") is None
    lost, back = (
        "the key store cannot be used, and the keys stay as they are: disk I/O error",
        "the key store can be used again",
    )
    assert caplog.messages == [lost, back, lost, back]


async def store_lost(ring: KeyRing, clock: Clock) -> None:
    for _ in range(5):
        await clock.advance(1)
        assert ring.find("sk-1") == ALICE


class BrokenStore(MemoryKeyStore):
    """A store with a row that cannot be read."""

    async def revision(self) -> int:
        raise ValueError("broken row")


async def test_a_broken_store_does_not_end_the_server(caplog: pytest.LogCaptureFixture) -> None:
    ring = KeyRing((), BrokenStore())
    await ring.poll()
    assert caplog.messages == ["the key store cannot be used, and the keys stay as they are: broken row"]


async def test_a_reload_reads_all_keys_at_once(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = MemoryKeyStore(), Clock()
    async with running(store, clock) as ring:
        await store.add(ALICE, hash_of("sk-1"))
        await ring.reload()
        assert ring.find("sk-1") == ALICE
        await ring.reload()
        assert store.reads == 3
        store.failure = "gone"
        await ring.reload()
        assert ring.find("sk-1") == ALICE
        assert len(caplog.messages) == 1


class DeafStore(MemoryKeyStore):
    """A store whose end never comes."""

    closing = False

    async def close(self) -> None:
        self.closing = True
        await anyio.sleep_forever()


async def test_the_store_is_closed_at_the_end_which_does_not_wait_for_it_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ring_module, "CLOSE_TIMEOUT", 0.0)
    store = DeafStore()
    with anyio.fail_after(20):
        async with KeyRing((), store).open():
            assert not store.closing
    assert store.closing


class ChangingStore(MemoryKeyStore):
    """A store that another process changes just after its keys were read first."""

    async def keys(self) -> list[StoredKey]:
        found = await super().keys()
        if self.reads == 1:
            await self.add(ALICE, hash_of("sk-1"))
        return found


async def test_a_change_beside_a_read_is_seen_by_the_next_look() -> None:
    ring = KeyRing((), ChangingStore())
    await ring.load()
    assert ring.find("sk-1") is None
    await ring.poll()
    assert ring.find("sk-1") == ALICE


@pytest.mark.parametrize(("given", "warnings"), [((), 1), (("sk-1",), 0)])
async def test_a_store_without_keys_is_a_warning_unless_the_command_line_has_one(
    given: tuple[str, ...], warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring = await open_ring(given, str(tmp_path / "keys.db"))
    async with ring.open():
        pass
    message = "the store of --keys has no keys, so that requests are refused; `llama-gateway keys add` adds one"
    assert caplog.messages == [message] * warnings


async def test_a_ring_without_a_store_has_nothing_to_follow() -> None:
    ring = KeyRing(["one"])
    await ring.load()
    await ring.reload()
    async with ring.open():
        pass
    assert ring.find("one") is not None


def test_secrets_are_not_shown() -> None:
    ring = KeyRing(["sk-one"])
    assert "sk-one" not in repr(ring) + repr(ring.find("sk-one"))
