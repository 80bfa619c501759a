"""Rows of stored responses."""

from collections.abc import Sequence

import msgspec

from gateway.apis.openai.responses.encoded import EncodedItem, EncodedResponse
from gateway.apis.openai.responses.store.stored_response import StoredResponse
from gateway.apis.openai.shared_store.entries import add_items, id_of, make_room
from gateway.apis.openai.stores import Bounds
from gateway.storage.database import Execute

ADD_ENTRY = "INSERT INTO stored_entries (id, owner, bytes) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1"
ADD_RESPONSE = "INSERT INTO stored_responses VALUES (?, ?, ?, ?, ?, ?, ?)"
OTHERS = """SELECT item.id FROM unnest(?::BYTEA[], ?::BYTEA[]) AS item (id, json) WHERE item.json <>
    (SELECT s.json FROM stored_items s WHERE s.owner = ? AND s.id = item.id AND s.refers LIMIT 1)"""
"""Ids that refer to other items. All rows to which one id refers are alike."""
RESPONSE = """SELECT head, echo, inputs, previous_id, can_continue, background
    FROM stored_responses JOIN stored_entries USING (id) WHERE id = ? AND owner = ?"""
ITEMS = "SELECT id, json FROM stored_items WHERE entry = ? ORDER BY number"


def add_response(execute: Execute, owner: str, stored: StoredResponse, bounds: Bounds) -> None:
    """Add a response, unless it is stored already, and evict others for it. `lock` must have been called."""
    entry, items = id_of(stored.id), stored.items
    if not execute(ADD_ENTRY, (entry, owner, stored.size)):
        return
    previous = None if stored.previous_id is None else id_of(stored.previous_id)
    flags = (stored.can_continue, stored.background)
    execute(ADD_RESPONSE, (entry, stored.content.head, stored.content.echo, len(stored.inputs), previous, *flags))
    add_items(execute, owner, entry, items, _referring(execute, owner, items))
    make_room(execute, entry, stored.size, bounds)


def read_response(execute: Execute, owner: str, response_id: str) -> StoredResponse | None:
    """Return a response, or None."""
    entry = id_of(response_id)
    rows = execute(RESPONSE, (entry, owner))
    if not rows:
        return None
    ((head, echo, inputs, previous, can_continue, background),) = rows
    items = read_items(execute, entry)
    return StoredResponse(
        id=response_id,
        content=EncodedResponse(head, tuple(items[inputs:]), echo),
        inputs=tuple(items[:inputs]),
        previous_id=None if previous is None else previous.decode(),
        can_continue=can_continue,
        background=background,
    )


def read_items(execute: Execute, entry: bytes) -> list[EncodedItem]:
    """Return all items of an entry."""
    return [EncodedItem(item_id.decode(), json) for item_id, json in execute(ITEMS, (entry,))]


def packed(stored: StoredResponse) -> bytes:
    """Return a response in one column, as that of one that runs."""
    return msgspec.msgpack.encode(stored)


def unpacked(column: bytes) -> StoredResponse:
    """Return the response of `packed`."""
    return msgspec.msgpack.decode(column, type=StoredResponse)


def _referring(execute: Execute, owner: str, items: Sequence[EncodedItem]) -> list[bool]:
    """Return for each item whether its id refers to it, by the rule of `OwnedResponses`."""
    ids, contents = [id_of(item.id) for item in items], [item.json for item in items]
    first = dict(zip(reversed(ids), reversed(contents), strict=True))
    others = {item_id for (item_id,) in execute(OTHERS, (ids, contents, owner))}
    return [name not in others and first[name] == json for name, json in zip(ids, contents, strict=True)]
