"""Behaviour of every key store. Each case gets a function that opens one and the same empty store again and again."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from gateway.keys.key import Key, KeyLimits
from gateway.keys.secret import hash_of
from gateway.keys.store import KeyStore, KeyStoreError, NameTakenError, NoSuchKeyError

Open = Callable[[], Coroutine[Any, Any, KeyStore]]
Case = Callable[[Open], Awaitable[None]]

PLAIN = Key(id="key_1", name="plain")
OTHER = Key(id="key_2", name="other")
FULL = Key(
    id="key_3",
    name="Ümläut'; DROP TABLE api_keys; --",
    models=frozenset({"a", "b c", "ü"}),
    limits=KeyLimits(
        requests_per_minute=1, tokens_per_minute=2, concurrent_requests=3, tokens_per_day=4, tokens_per_month=10**15
    ),
    weight=0.1,
    priority=-5,
    expires_at=4_000_000_000.25,
)


async def keys_of(store: KeyStore) -> dict[str, Key]:
    """Return the active keys by the hashes of their secrets."""
    return {stored.secret_hash: stored.key for stored in await store.keys() if stored.revoked_at is None}


async def a_new_store_is_empty(open_store: Open) -> None:
    store = await open_store()
    assert await store.keys() == []
    assert await store.revision() == await store.revision()


async def keys_are_listed_with_all_properties(open_store: Open) -> None:
    store = await open_store()
    for key in (PLAIN, FULL, replace(OTHER, models=frozenset())):
        await store.add(key, hash_of(key.id))
        (stored,) = [stored for stored in await store.keys() if stored.key.id == key.id]
        assert stored.key == key
        assert (stored.secret_hash, stored.revoked_at) == (hash_of(key.id), None)


async def keys_are_listed_in_the_order_of_their_creation(open_store: Open) -> None:
    store = await open_store()
    for key in (FULL, OTHER, PLAIN):
        await store.add(key, hash_of(key.id))
    stored = await store.keys()
    assert [one.key for one in stored] == [FULL, OTHER, PLAIN]
    assert sorted(one.created_at for one in stored) == [one.created_at for one in stored]


async def every_change_has_another_revision(open_store: Open) -> None:
    store = await open_store()
    revisions = [await store.revision()]
    for change in (
        store.add(PLAIN, hash_of("a")),
        store.edit(PLAIN.id, lambda key: replace(key, weight=2.0)),
        store.rotate(PLAIN.id, hash_of("b")),
        store.revoke(PLAIN.id),
    ):
        await change
        assert await store.revision() == await store.revision()
        revisions.append(await store.revision())
    assert len(set(revisions)) == len(revisions)


async def an_edit_changes_one_key_and_returns_it(open_store: Open) -> None:
    store = await open_store()
    await store.add(PLAIN, hash_of("a"))
    await store.add(OTHER, hash_of("b"))
    changed = replace(FULL, id=PLAIN.id)
    assert await store.edit(PLAIN.id, lambda _: changed) == changed
    assert await keys_of(store) == {hash_of("a"): changed, hash_of("b"): OTHER}
    assert await store.edit(PLAIN.id, lambda key: replace(PLAIN, name=key.name)) == replace(PLAIN, name=FULL.name)


async def a_rotated_key_has_another_secret_and_is_else_the_same(open_store: Open) -> None:
    store = await open_store()
    await store.add(FULL, hash_of("old"))
    await store.rotate(FULL.id, hash_of("new"))
    assert await keys_of(store) == {hash_of("new"): FULL}


async def a_revoked_key_stays_in_the_list(open_store: Open) -> None:
    store = await open_store()
    await store.add(PLAIN, hash_of("a"))
    await store.add(OTHER, hash_of("b"))
    await store.revoke(PLAIN.id)
    revoked, active = await store.keys()
    assert revoked.key == PLAIN
    assert revoked.revoked_at is not None
    assert revoked.revoked_at >= revoked.created_at
    assert active.revoked_at is None


async def only_an_active_key_can_be_changed(open_store: Open) -> None:
    store = await open_store()
    await store.add(PLAIN, hash_of("a"))
    await store.revoke(PLAIN.id)
    before = await store.keys(), await store.revision()
    for key_id in (PLAIN.id, "key_unknown"):
        for change in (store.edit(key_id, lambda key: key), store.rotate(key_id, hash_of("b")), store.revoke(key_id)):
            with pytest.raises(NoSuchKeyError, match=key_id):
                await change
    assert (await store.keys(), await store.revision()) == before


async def active_keys_have_different_names(open_store: Open) -> None:
    store = await open_store()
    await store.add(PLAIN, hash_of("a"))
    await store.add(OTHER, hash_of("b"))
    before = await store.keys(), await store.revision()
    with pytest.raises(NameTakenError):
        await store.add(replace(FULL, name=PLAIN.name), hash_of("c"))
    with pytest.raises(NameTakenError):
        await store.edit(OTHER.id, lambda key: replace(key, name=PLAIN.name))
    assert (await store.keys(), await store.revision()) == before


async def the_name_of_a_revoked_key_is_free(open_store: Open) -> None:
    store = await open_store()
    await store.add(PLAIN, hash_of("a"))
    await store.revoke(PLAIN.id)
    await store.add(replace(OTHER, name=PLAIN.name), hash_of("b"))
    assert await keys_of(store) == {hash_of("b"): replace(OTHER, name=PLAIN.name)}


async def an_edit_that_fails_changes_nothing(open_store: Open) -> None:
    store = await open_store()
    await store.add(PLAIN, hash_of("a"))
    before = await store.keys(), await store.revision()

    def fail(_key: Key) -> Key:
        raise KeyStoreError("no")

    with pytest.raises(KeyStoreError, match="no"):
        await store.edit(PLAIN.id, fail)
    assert (await store.keys(), await store.revision()) == before
    await store.revoke(PLAIN.id)  # the store can still be used


async def a_change_is_seen_by_everyone(open_store: Open) -> None:
    server, command = await open_store(), await open_store()
    seen = await server.revision()
    await command.add(PLAIN, hash_of("a"))
    assert await server.revision() != seen
    assert await keys_of(server) == {hash_of("a"): PLAIN}
    await server.revoke(PLAIN.id)
    assert await keys_of(command) == {}
    assert await command.revision() == await server.revision()


async def a_closed_store_opens_again(open_store: Open) -> None:
    store = await open_store()
    await store.add(PLAIN, hash_of("a"))
    await store.close()
    assert await keys_of(store) == {hash_of("a"): PLAIN}


CASES: tuple[Case, ...] = (
    a_new_store_is_empty,
    keys_are_listed_with_all_properties,
    keys_are_listed_in_the_order_of_their_creation,
    every_change_has_another_revision,
    an_edit_changes_one_key_and_returns_it,
    a_rotated_key_has_another_secret_and_is_else_the_same,
    a_revoked_key_stays_in_the_list,
    only_an_active_key_can_be_changed,
    active_keys_have_different_names,
    the_name_of_a_revoked_key_is_free,
    an_edit_that_fails_changes_nothing,
    a_change_is_seen_by_everyone,
    a_closed_store_opens_again,
)
