"""List of the prefixes that can be reused."""

from collections.abc import Iterable, Iterator
from itertools import chain

from engine.core.kv.prefix import Prefix
from engine.core.kv.slot import Slot
from engine.info import HeldPrefix


def held_prefixes(slots: Iterable[Slot], stored: Iterable[Prefix]) -> Iterator[HeldPrefix]:
    """Return the prefixes with an origin: those of running sequences first, then of free slots, then the stored ones.

    The last ones used come first. Only the call reads the slots; the iteration needs no lock.

    Args:
        slots: all slots.
        stored: the stored prefixes, in order.
    """
    by_use = sorted((slot for slot in slots if slot.size), key=lambda slot: (slot.holder is None, -slot.used))
    resident = [slot.prefix for slot in by_use]
    return (
        HeldPrefix(*prefix.origin, prefix.size) for prefix in chain(resident, stored) if prefix.origin and prefix.size
    )
