"""Many connections to one store that create it and edit one key at the same time."""

from dataclasses import replace

import anyio

from gateway.keys.key import Key
from gateway.keys.secret import hash_of
from tests.gateway.keys.conformance import Open

CONNECTIONS, EDITS = 4, 5


async def edit_at_once(open_store: Open) -> None:
    """Count in one key's priority on several connections. No edit may be lost."""

    async def edit() -> None:
        store = await open_store()
        for _ in range(EDITS):
            await store.edit("key_1", lambda key: replace(key, priority=key.priority + 1))

    async with anyio.create_task_group() as tasks:
        for _ in range(CONNECTIONS):
            tasks.start_soon(open_store)
    store = await open_store()
    await store.add(Key(id="key_1", name="one"), hash_of("a"))
    async with anyio.create_task_group() as tasks:
        for _ in range(CONNECTIONS):
            tasks.start_soon(edit)
    (stored,) = await store.keys()
    assert stored.key.priority == CONNECTIONS * EDITS
