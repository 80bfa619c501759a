"""Random sequences of changes leave the same keys in memory and in a database."""

from dataclasses import replace
from tempfile import TemporaryDirectory

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.keys.key import Key, KeyLimits
from gateway.keys.ring import KeyRing
from gateway.keys.secret import hash_of
from gateway.keys.sql_store import SqlKeyStore
from gateway.keys.store import KeyStore, KeyStoreError
from gateway.storage.place import open_database
from tests.gateway.keys.memory_store import MemoryKeyStore

NUMBER = st.none() | st.integers(1, 10**15)
TEXT = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=5)
KEYS = st.builds(
    Key,
    id=st.sampled_from(["key_1", "key_2", "key_3"]),
    name=st.sampled_from(["one", "two"]) | TEXT,
    models=st.none() | st.frozensets(TEXT, max_size=3),
    limits=st.builds(
        KeyLimits,
        requests_per_minute=NUMBER,
        tokens_per_minute=NUMBER,
        concurrent_requests=NUMBER,
        tokens_per_day=NUMBER,
        tokens_per_month=NUMBER,
    ),
    weight=st.floats(0.01, 100),
    priority=st.integers(-(10**9), 10**9),
    expires_at=st.none() | st.floats(0, 4e9),
)
CHANGES = st.lists(st.tuples(st.sampled_from(["add", "edit", "rotate", "revoke"]), KEYS), max_size=10)


async def change(store: KeyStore, action: str, key: Key, secret: str) -> str:
    """Make one change, and return the name of its error."""
    try:
        match action:
            case "add":
                await store.add(key, hash_of(secret))
            case "edit":
                await store.edit(key.id, lambda known: replace(key, id=known.id))
            case "rotate":
                await store.rotate(key.id, hash_of(secret))
            case "revoke":
                await store.revoke(key.id)
    except KeyStoreError as error:
        return type(error).__name__
    return ""


def secret_of(number: int) -> str:
    return f"secret {number}"


async def same(changes: list[tuple[str, Key]]) -> None:
    with TemporaryDirectory() as folder:
        stored = SqlKeyStore(open_database(f"{folder}/keys.db"), lambda: 1.0)
        await stored.create()
        memory = MemoryKeyStore(lambda: 1.0)
        ring = KeyRing((), stored, now=lambda: 0.0)
        added = set()
        for number, (action, key) in enumerate(changes):
            if action == "add" and key.id in added:
                continue  # ids are random, and never the same
            secret = secret_of(number)
            outcome = await change(memory, action, key, secret)
            assert await change(stored, action, key, secret) == outcome
            if action == "add" and not outcome:
                added.add(key.id)
            await ring.poll()
            expected = {one.key.id: one for one in await memory.keys()}
            assert {one.key.id: one for one in await stored.keys()} == expected
            usable = {
                one.secret_hash: one.key
                for one in expected.values()
                if one.revoked_at is None and one.key.expires_at != 0
            }
            found = {hash_of(secret): ring.find(secret) for secret in map(secret_of, range(len(changes)))}
            assert {digest: key for digest, key in found.items() if key} == usable
        await stored.close()


@settings(max_examples=8)
@given(CHANGES)
def test_a_database_does_what_a_dictionary_does(changes: list[tuple[str, Key]]) -> None:
    anyio.run(same, changes)
