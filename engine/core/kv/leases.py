"""Leases of slots. free + held == total, always."""

from engine.core.kv.slot import Slot
from engine.core.sequence import Sequence


class SlotLeases:
    """Leases each slot to one sequence at a time."""

    slots: list[Slot]
    """Every slot, by `seq_id`."""

    def __init__(self, slots: int) -> None:
        """Create free, empty slots."""
        self.slots = [Slot(seq_id) for seq_id in range(slots)]
        self._free = set(range(slots))
        self._clock = 0

    @property
    def free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    @property
    def held(self) -> int:
        """Number of leased slots."""
        return len(self.slots) - len(self._free)

    @property
    def active_tokens(self) -> int:
        """Cells of running sequences, and of ended ones until their cells are dropped."""
        return sum([holder.computed for slot in self.slots if (holder := slot.holder or slot.leaving)])

    @property
    def cached_tokens(self) -> int:
        """Cells kept in free slots for their prefix."""
        return sum([len(slot.cached) for slot in self.slots])

    def _hand_over(self, slot: Slot, sequence: Sequence) -> None:
        """Lease a free slot to a sequence."""
        self._free.remove(slot.seq_id)
        slot.holder, slot.cached, slot.returns = sequence, [], False
        sequence.seq_id = slot.seq_id

    def _give_back(self, slot: Slot, sequence: Sequence) -> None:
        """End the lease of a slot."""
        if slot.holder is not sequence:
            raise RuntimeError(f"slot {slot.seq_id} is not held by the sequence that releases it")
        slot.holder = None
        self._free.add(slot.seq_id)
        self._touch(slot)

    def _exchange(self, source: Slot, target: Slot, moved: Sequence) -> None:
        """Lease another slot to a sequence, and its own one to the holder of that one, or leave the prefix there."""
        other, kept = target.holder, (target.cached, target.partition, target.origin, target.used, target.returns)
        for slot in (source, target):
            slot.holder = None
            self._free.add(slot.seq_id)
        self._hand_over(target, moved)
        if other:
            self._hand_over(source, other)
        else:
            source.cached, source.partition, source.origin, source.used, source.returns = kept

    def _touch(self, slot: Slot) -> None:
        self._clock += 1
        slot.used = self._clock

    def _wished(self, sequence: Sequence) -> Slot | None:
        """Return the slot that a request names, if it is free."""
        wish = sequence.request.slot
        return self.slots[wish] if wish in self._free else None
