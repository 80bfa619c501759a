"""A slot of the KV cache: its lease and its resident tokens."""

from dataclasses import dataclass, field

from engine.core.kv.prefix import Prefix
from engine.core.sequence import Sequence
from engine.info import SlotInfo


@dataclass(slots=True)
class Slot:
    """One `seq_id` of the KV cache."""

    seq_id: int
    """Its id, from 0."""
    holder: Sequence | None = None
    """The sequence that leases it."""
    leaving: Sequence | None = None
    """The sequence that held it last, until its cells are dropped."""
    cached: list[int] = field(default_factory=list)
    """The tokens resident in a free slot."""
    partition: str | None = None
    """Their cache partition, as in `Prefix`."""
    origin: tuple[int, int] | None = None
    """Their origin, as in `Prefix`."""
    returns: bool = False
    """True if the sequence that held it comes again and can reuse its cells."""
    floor: int = 0
    """Number of first cells that were copied from elsewhere. A `windowed` model cannot drop only a part of them."""
    used: int = 0
    """Number of the last event that released it or copied from it, for least-recently-used eviction."""

    @property
    def prefix(self) -> Prefix:
        """The resident prefix."""
        if self.holder:
            return Prefix(self.holder.tokens, self.holder.computed, self.holder.partition, self.holder.origin)
        return Prefix(self.cached, len(self.cached), self.partition, self.origin)

    @property
    def tokens(self) -> list[int]:
        """A list that begins with the resident tokens."""
        return self.holder.tokens if self.holder else self.cached

    @property
    def size(self) -> int:
        """Number of resident tokens."""
        return self.holder.computed if self.holder else len(self.cached)

    @property
    def info(self) -> SlotInfo:
        """Its state. After a cancel it belongs to the sequence until the cells are dropped."""
        holder = self.holder or self.leaving
        if holder is None:
            return SlotInfo(self.seq_id, "idle", None, 0, len(self.cached))
        return SlotInfo(self.seq_id, "decode" if holder.generated else "prefill", holder.request.id, holder.computed, 0)


def place(slots: list[Slot], source: Slot | None) -> Slot:
    """Choose the free slot with most held neighbours; then the source itself; then an empty or the oldest one.

    Neighbouring `seq_id`s share one weight pass, so an isolated slot costs every step a weight pass of its own.
    """
    held = [False, *[slot.holder is not None for slot in slots], False]

    def cost(slot: Slot) -> tuple[int, bool, int, int]:
        return (
            -held[slot.seq_id] - held[slot.seq_id + 2],
            slot is not source,
            slot.used if slot.cached else 0,
            slot.seq_id,
        )

    return min((slot for slot in slots if slot.holder is None), key=cost)
