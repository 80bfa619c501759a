"""Keys and their usage as plain-text tables, and as objects for JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple
from datetime import UTC, datetime
from typing import Any

from gateway.keys.store import StoredKey
from gateway.usage.store import KeyUsage

HEAD = (
    "id",
    "name",
    "state",
    "models",
    "requests/min",
    "tokens/min",
    "concurrent",
    "tokens/day",
    "tokens/month",
    "weight",
    "priority",
    "expires",
)
USAGE_HEAD = ("name", "id", "model", "day", "requests", "prompt tokens", "of these cached", "completion tokens")


def state_of(stored: StoredKey, now: float) -> str:
    """Return `active`, `expired` or `revoked`."""
    if stored.revoked_at is not None:
        return "revoked"
    expires = stored.key.expires_at
    return "expired" if expires is not None and expires <= now else "active"


def keys_table(keys: Iterable[StoredKey], now: float) -> str:
    """Return a table of keys. `-` stands for no limit."""
    return table(HEAD, [_row(stored, now) for stored in keys])


def _row(stored: StoredKey, now: float) -> list[str]:
    key = stored.key
    models = "all" if key.models is None else ",".join(sorted(key.models))
    numbers = ("-" if limit is None else str(limit) for limit in astuple(key.limits))
    expires = time_text(key.expires_at) or "never"
    return [key.id, key.name, state_of(stored, now), models, *numbers, f"{key.weight:g}", str(key.priority), expires]


def key_object(stored: StoredKey, now: float) -> dict[str, Any]:
    """Return a key as an object for JSON, without the hash of its secret."""
    key = stored.key
    return {
        "id": key.id,
        "name": key.name,
        "state": state_of(stored, now),
        "models": None if key.models is None else sorted(key.models),
        **asdict(key.limits),
        "weight": key.weight,
        "priority": key.priority,
        "expires_at": time_text(key.expires_at),
        "created_at": time_text(stored.created_at),
        "revoked_at": time_text(stored.revoked_at),
    }


def usage_table(sums: Iterable[KeyUsage], names: Mapping[str, str]) -> str:
    """Return a table of the use of models.

    Args:
        sums: the use.
        names: the keys' names by id.
    """
    return table(USAGE_HEAD, [[str(value) for value in usage_object(usage, names).values()] for usage in sums])


def usage_object(usage: KeyUsage, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the use of a model as an object for JSON."""
    return {"name": names.get(usage.key_id, usage.key_id), **asdict(usage)}


def time_text(moment: float | None) -> str | None:
    """Return a time in UTC, or None."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return lines of columns, two spaces apart."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)
