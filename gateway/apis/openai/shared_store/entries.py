"""Entries of the shared store, and the part of it that each owner uses. The rules are those of `Shares`."""

from collections.abc import Collection, Sequence

from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.shared_store.schema import LOCK
from gateway.apis.openai.stores import Bounds
from gateway.storage.database import Execute

OWNERS = """SELECT owner, entries, bytes FROM stored_owners o
    ORDER BY (SELECT max(used) FROM stored_entries e WHERE e.owner = o.owner)"""
TOTAL = "SELECT COALESCE(sum(entries), 0), COALESCE(sum(bytes), 0) FROM stored_owners"
OLDEST = "SELECT id, bytes FROM stored_entries WHERE owner = ? ORDER BY used LIMIT ?"
USE = """UPDATE stored_entries SET used = nextval('stored_uses') WHERE id IN
    (SELECT id FROM stored_entries WHERE id = ANY(?) AND owner = ? FOR UPDATE SKIP LOCKED)"""
"""Never waits: an entry that is locked is used or removed by others."""
ADD_ITEMS = """INSERT INTO stored_items (entry, owner, number, id, json, refers)
    SELECT ?, ?, number + (SELECT COALESCE(max(number), 0) FROM stored_items WHERE entry = ?), id, json, refers
    FROM unnest(?::BYTEA[], ?::BYTEA[], ?::BOOLEAN[]) WITH ORDINALITY AS item (id, json, refers, number)"""
MOST_EVICTED = 500
"""Entries that one change evicts at most. If limits were lowered, later changes evict the rest."""


def lock(execute: Execute) -> None:
    """Keep other gateways from changing the number and the sizes of entries until the end of the transaction."""
    execute("SELECT pg_advisory_xact_lock(?)", (LOCK,))


def use(execute: Execute, owner: str, ids: Sequence[bytes]) -> None:
    """Make entries the most recently used ones. Has no effect on unknown ones."""
    execute(USE, (list(ids), owner))


def add_items(execute: Execute, owner: str, entry: bytes, items: Sequence[EncodedItem], refers: Sequence[bool]) -> None:
    """Add items at the end of an entry.

    Args:
        execute: executes statements.
        owner: owner of the entry.
        entry: id of the entry.
        items: the items.
        refers: True for each item to which its id refers.
    """
    ids, contents = [id_of(item.id) for item in items], [item.json for item in items]
    execute(ADD_ITEMS, (entry, owner, entry, ids, contents, list(refers)))


def make_room(execute: Execute, entry: bytes, size: int, bounds: Bounds) -> None:
    """Evict entries until all fit, after one was added or has grown. `lock` must have been called.

    Args:
        execute: executes statements.
        entry: id of the entry that was added or has grown. If it is larger than the whole store, it is evicted, and no
            other one.
        size: its size, in bytes.
        bounds: the limits.
    """
    if size > bounds.bytes:
        _remove(execute, [entry])
        return
    if not _overflows(execute(TOTAL), bounds):
        return
    left = MOST_EVICTED
    owners = {owner: (count, total) for owner, count, total in execute(OWNERS)}
    while left > 0 and owners and _overflows(owners.values(), bounds):
        largest = max(owners, key=lambda owner: _part(owners[owner], bounds))
        share = 1 / len(owners)
        evicted: list[bytes] = []
        for oldest, length in execute(OLDEST, (largest, left)):
            if not _overflows(owners.values(), bounds) or _part(owners[largest], bounds) <= share:
                break
            count, total = owners[largest]
            owners[largest] = count - 1, total - length
            evicted.append(oldest)
        _remove(execute, evicted)
        left -= len(evicted)
        if not evicted or not owners[largest][0]:
            del owners[largest]


def id_of(text: str) -> bytes:
    """Return an id as the database has it."""
    return text.encode(errors="surrogatepass")


def _remove(execute: Execute, entries: Sequence[bytes]) -> None:
    execute("DELETE FROM stored_entries WHERE id = ANY(?)", (list(entries),))


def _overflows(owners: Collection[tuple[int, int]], bounds: Bounds) -> bool:
    return sum(count for count, _ in owners) > bounds.entries or sum(total for _, total in owners) > bounds.bytes


def _part(owned: tuple[int, int], bounds: Bounds) -> float:
    """Return the part of the store that an owner uses."""
    count, total = owned
    return max(count / bounds.entries, total / bounds.bytes)
