"""Stores under test, and what is in them."""

from collections.abc import Sequence
from typing import Any, Protocol

import orjson
import psycopg
import pytest
from typing_extensions import override

from gateway.apis.openai.conversations.memory_store import MemoryConversations
from gateway.apis.openai.responses.encoded import EncodedItem, EncodedResponse
from gateway.apis.openai.responses.store.memory_store import MemoryResponses
from gateway.apis.openai.responses.store.stored_response import StoredResponse
from gateway.apis.openai.shared_store.opening import open_shared_stores
from gateway.apis.openai.stores import Bounds, Stores, stores_in_memory
from gateway.middleware.errors import RefusedError

OWNER = "digest"


class Bench(Protocol):
    """A kind of stores."""

    many: int
    """Number of entries in a test with many."""

    async def open(self, *, max_entries: int = 100, max_bytes: int = 10**7, max_recalled_bytes: int = 10**6) -> Stores:
        """Return empty stores."""
        ...

    async def known(self) -> set[tuple[str, str]]:
        """Return the owner and the id of each entry, without using it."""
        ...

    async def is_empty(self) -> bool:
        """Return True if nothing is left of any entry."""
        ...


class MemoryBench(Bench):
    """Stores in memory."""

    many = 1000
    _stores: Stores

    @override
    async def open(self, *, max_entries: int = 100, max_bytes: int = 10**7, max_recalled_bytes: int = 10**6) -> Stores:
        self._stores = stores_in_memory(Bounds(max_entries, max_bytes, max_recalled_bytes))
        return self._stores

    @override
    async def known(self) -> set[tuple[str, str]]:
        responses, conversations = self._parts()
        kept = {(owner, name) for owner, owned in responses._owners.items() for name in owned._responses}
        return kept | conversations._kept.keys()

    @override
    async def is_empty(self) -> bool:
        responses, conversations = self._parts()
        shares = responses._shares
        parts = (
            shares._count,
            shares._size,
            shares._owners,
            responses._owners,
            responses._running,
            conversations._kept,
        )
        return not any(parts)

    def _parts(self) -> tuple[MemoryResponses, MemoryConversations]:
        responses, conversations = self._stores.responses, self._stores.conversations
        assert isinstance(responses, MemoryResponses)
        assert isinstance(conversations, MemoryConversations)
        return responses, conversations


class SharedBench(Bench):
    """Stores in PostgreSQL."""

    many = 60

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: list[Stores] = []

    @override
    async def open(self, *, max_entries: int = 100, max_bytes: int = 10**7, max_recalled_bytes: int = 10**6) -> Stores:
        stores = await self.join(max_entries=max_entries, max_bytes=max_bytes, max_recalled_bytes=max_recalled_bytes)
        self.rows("TRUNCATE stored_entries, stored_owners, stored_running, stored_gateways CASCADE")
        return stores

    async def join(self, *, max_entries: int = 100, max_bytes: int = 10**7, max_recalled_bytes: int = 10**6) -> Stores:
        """Return stores with what others have left in the database."""
        stores = await open_shared_stores(self.url, Bounds(max_entries, max_bytes, max_recalled_bytes))
        self._opened.append(stores)
        return stores

    @override
    async def known(self) -> set[tuple[str, str]]:
        return {(owner, name.decode()) for owner, name in self.rows("SELECT owner, id FROM stored_entries")}

    @override
    async def is_empty(self) -> bool:
        tables = ("stored_entries", "stored_owners", "stored_responses", "stored_conversations", "stored_items")
        return not any(self.rows(f"TABLE {table}") for table in tables)

    async def close(self) -> None:
        """Close the connections of all stores."""
        for stores in self._opened:
            async with stores.open():
                """Leave what was never used."""

    def rows(self, statement: str, *values: object) -> list[Any]:
        """Execute a statement on a connection of its own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []


def item(name: str, **fields: str) -> EncodedItem:
    return EncodedItem(name, orjson.dumps({"id": name, **fields}))


def items(*names: str, text: str = "x") -> list[EncodedItem]:
    return [item(name, text=text) for name in names]


def asked(name: str) -> tuple[EncodedItem, ...]:
    return (item(f"in_{name}"),)


def response(
    name: str,
    *inputs: EncodedItem,
    previous: str | None = None,
    status: str = "completed",
    text: str = "x",
    background: bool = False,
) -> StoredResponse:
    """Return a response with one item of output."""
    head = orjson.dumps({"id": name, "status": status})
    return StoredResponse(
        id=name,
        content=EncodedResponse(head, (item(f"out_{name}", text=text),), b'{"store":true}'),
        inputs=inputs,
        previous_id=previous,
        can_continue=status in {"completed", "incomplete"},
        background=background,
    )


async def chain(stores: Stores, *names: str) -> None:
    """Store responses of which each follows the one before."""
    for before, name in zip((None, *names), names, strict=False):
        await stores.responses.put(OWNER, response(name, *asked(name), previous=before))


async def are_known(bench: Bench, *names: str, owner: str = OWNER) -> list[bool]:
    known = await bench.known()
    return [(owner, name) in known for name in names]


async def found(stores: Stores, *names: str, owner: str = OWNER) -> dict[str, Any]:
    """Return the items with these ids, decoded."""
    items = await stores.responses.items(owner, names, "input")
    return {name: orjson.loads(item.json) for name, item in items.items()}


async def gone(stores: Stores, name: str, owner: str = OWNER) -> str | None:
    """Return the code of the 404 for a response."""
    with pytest.raises(RefusedError) as caught:
        await stores.responses.get(owner, name)
    assert caught.value.problem.status == 404
    return caught.value.problem.code


async def created(stores: Stores, *names: str, owner: str = OWNER) -> str:
    """Return the id of a new conversation with some items."""
    return (await stores.conversations.create(owner, {}, items(*names)))["id"]


async def ids(stores: Stores, conversation: str, owner: str = OWNER) -> Sequence[str]:
    """Return the ids of the items of a conversation."""
    return [item.id for item in await stores.conversations.read(owner, conversation)]
