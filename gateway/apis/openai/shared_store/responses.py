"""Responses in the shared store."""

from collections.abc import Callable, Collection
from functools import partial

import anyio
from typing_extensions import override

from gateway.apis.openai.conversations.store import TurnEnd
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.store.recalled import MAX_RECALLED_ITEMS, Recalled, check_recalled
from gateway.apis.openai.responses.store.store import ResponseStore, not_found
from gateway.apis.openai.responses.store.stored_response import StoredResponse
from gateway.apis.openai.shared_store.conversations import SharedTurn
from gateway.apis.openai.shared_store.entries import id_of, lock, use
from gateway.apis.openai.shared_store.presence import Presence
from gateway.apis.openai.shared_store.records import add_response, packed, read_response, unpacked
from gateway.apis.openai.shared_store.storage import Storage
from gateway.apis.openai.stores import Bounds
from gateway.storage.database import Execute

REMOVE = """DELETE FROM stored_entries WHERE id = ? AND owner = ?
    AND id IN (SELECT id FROM stored_responses) RETURNING 1"""
CHAIN = """WITH RECURSIVE chain AS (
        SELECT id, previous_id, can_continue, 1 AS depth FROM stored_responses WHERE id = ?
        UNION ALL
        SELECT r.id, r.previous_id, r.can_continue, depth + 1 FROM stored_responses r
            JOIN chain ON r.id = chain.previous_id WHERE depth <= ?
    )
    SELECT chain.id, previous_id, can_continue, count(json), COALESCE(sum(octet_length(json)), 0)
    FROM chain JOIN stored_entries e ON e.id = chain.id AND e.owner = ? LEFT JOIN stored_items ON entry = chain.id
    GROUP BY chain.id, previous_id, can_continue, depth ORDER BY depth"""
CHAIN_ITEMS = """SELECT i.id, json FROM unnest(?::BYTEA[]) WITH ORDINALITY AS chain (id, depth)
    JOIN stored_items i ON entry = chain.id ORDER BY depth DESC, number"""
FOUND = """FROM (SELECT DISTINCT unnest(?::BYTEA[])) AS wanted (id) CROSS JOIN LATERAL
    (SELECT json FROM stored_items s WHERE s.owner = ? AND s.id = wanted.id AND s.refers LIMIT 1) AS found"""
"""Items to which some ids refer. All rows to which one id refers are alike."""
SIZE = f"SELECT COALESCE(sum(octet_length(json)), 0) {FOUND}"
FIND = f"SELECT id, json {FOUND}"
ANNOUNCE = "INSERT INTO stored_running (id, owner, gateway, response) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
UPDATE = "UPDATE stored_running SET response = ? WHERE id = ? AND owner = ?"
RUNNING = "SELECT response FROM stored_running WHERE id = ? AND owner = ?"
END = "DELETE FROM stored_running WHERE id = ? AND owner = ? RETURNING 1"
CANCEL = "UPDATE stored_running SET cancelled = TRUE WHERE id = ? AND owner = ? RETURNING 1"
CANCEL_TIMEOUT = 10.0
"""Seconds to wait for the end of a response that another gateway cancels."""
CANCEL_INTERVAL = 0.1
"""Seconds between two looks for its end."""


class SharedResponses(ResponseStore):
    """Keeps responses in PostgreSQL. What runs in the background has a row of its own until its end."""

    def __init__(self, storage: Storage, presence: Presence, bounds: Bounds) -> None:
        self._storage = storage
        self._presence = presence
        self._bounds = bounds

    @override
    async def ready(self) -> None:
        await self._storage.ready()

    @override
    async def put(self, owner: str, stored: StoredResponse, end: TurnEnd | None = None) -> None:
        turn = end.turn if end is not None and isinstance(end.turn, SharedTurn) and not end.turn.over else None

        def work(execute: Execute) -> None:
            lock(execute)
            if not stored.background or execute(END, (id_of(stored.id), owner)):
                add_response(execute, owner, stored, self._bounds)
            if end is not None and turn is not None:
                turn.end_within(execute, end.items)

        await self._storage.run(work)
        if turn is not None:
            turn.ended()

    @override
    async def get(self, owner: str, response_id: str) -> StoredResponse:
        if (stored := await self._find(owner, response_id)) is None:
            raise not_found(response_id)
        return stored

    @override
    async def remove(self, owner: str, response_id: str) -> bool:
        removed = False  # also if the answer to the first attempt was lost

        def work(execute: Execute) -> bool:
            nonlocal removed
            lock(execute)
            place = id_of(response_id), owner
            removed = bool(execute(END, place) or execute(REMOVE, place)) or removed
            return removed

        return await self._storage.run(work)

    @override
    async def history(self, owner: str, response_id: str) -> list[EncodedItem]:
        def work(execute: Execute) -> list[EncodedItem]:
            recalled, ids = Recalled(response_id, self._bounds.recalled), list[bytes]()
            for entry, previous, can_continue, count, size in execute(
                CHAIN, (id_of(response_id), MAX_RECALLED_ITEMS, owner)
            ):
                previous_id = None if previous is None else previous.decode()
                recalled.add(previous_id, count, int(size), can_continue=can_continue)
                ids.append(entry)
            if recalled.follows is not None:
                place = id_of(recalled.follows), owner
                raise recalled.missing(running=bool(execute(RUNNING, place)))
            use(execute, owner, ids)
            return [EncodedItem(item_id.decode(), json) for item_id, json in execute(CHAIN_ITEMS, (ids,))]

        return await self._storage.run(work)

    @override
    async def items(self, owner: str, ids: Collection[str], param: str) -> dict[str, EncodedItem]:
        def work(execute: Execute) -> dict[str, EncodedItem]:
            places = [id_of(item_id) for item_id in ids], owner
            ((size,),) = execute(SIZE, places)
            check_recalled(int(size), self._bounds.recalled, param)
            found = (EncodedItem(item_id.decode(), json) for item_id, json in execute(FIND, places))
            return {item.id: item for item in found}

        return await self._storage.run(work) if ids else {}

    @override
    async def announce(self, owner: str, stored: StoredResponse, cancel: Callable[[], None]) -> None:
        entry = id_of(stored.id)

        def work(execute: Execute) -> None:
            self._presence.renew(execute)
            execute(ANNOUNCE, (entry, owner, self._presence.gateway, packed(stored)))

        self._presence.announce(entry, cancel)
        await self._storage.run(work)
        self._presence.shown(entry)

    @override
    def forget(self, response_id: str) -> None:
        self._presence.forget(id_of(response_id))

    @override
    async def update(self, owner: str, stored: StoredResponse) -> None:
        await self._storage.run(lambda execute: execute(UPDATE, (packed(stored), id_of(stored.id), owner)))

    @override
    async def cancel(self, owner: str, response_id: str) -> StoredResponse:
        place = id_of(response_id), owner
        with anyio.move_on_after(CANCEL_TIMEOUT):
            while await self._storage.run(partial(_ask, place)):  # noqa: ASYNC110 - the event is in another process
                await anyio.sleep(CANCEL_INTERVAL)
        return await self.get(owner, response_id)

    async def _find(self, owner: str, response_id: str) -> StoredResponse | None:
        def work(execute: Execute) -> StoredResponse | None:
            use(execute, owner, [id_of(response_id)])
            if running := execute(RUNNING, (id_of(response_id), owner)):
                return unpacked(running[0][0])
            return read_response(execute, owner, response_id)

        return await self._storage.run(work)


def _ask(place: tuple[bytes, str], execute: Execute) -> bool:
    """Ask for the cancel of a response. Return False if it does not run."""
    return bool(execute(CANCEL, place))
