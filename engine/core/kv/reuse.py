"""Search for cells to reuse: in the slots, and in host memory."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from engine.core.kv.prefix import Prefix, StoredPrefix
from engine.core.kv.prefix_store import PrefixStore
from engine.core.kv.slot import Slot
from engine.core.model import ModelTraits

PrefixSource: TypeAlias = Slot | StoredPrefix
"""A place to reuse cells from."""
S_co = TypeVar("S_co", bound=PrefixSource, covariant=True)
S = TypeVar("S", bound=PrefixSource)


@dataclass(frozen=True, slots=True)
class Reuse(Generic[S_co]):
    """Cells that hold the beginning of a prompt."""

    source: S_co
    """The place that holds them."""
    tokens: int
    """Number of cells to reuse."""
    checkpoint: StoredPrefix | None = None
    """The checkpoint to which all cells of the source are rolled back; unset if its last cells are just dropped."""

    @property
    def stored(self) -> list[StoredPrefix]:
        """The parts of it that are in host memory."""
        return [one for one in (self.source, self.checkpoint) if isinstance(one, StoredPrefix)]


class ReuseFinder:
    """Finds the most cells that a prompt can reuse.

    Where the last cells of a sequence cannot be dropped alone, a source serves as a whole, or up to a checkpoint.
    """

    def __init__(self, store: PrefixStore, traits: ModelTraits) -> None:
        self._store = store
        self._traits = traits

    def best(self, slots: Iterable[Slot], wanted: Prefix) -> Reuse[PrefixSource] | None:
        """Return the best source to copy from among these slots and the store; the smallest of equal ones."""
        sources: list[PrefixSource] = [*slots, *self._store.find(wanted)]
        return self._best(sources, wanted, self._cuts_copy)

    def best_slot(self, slots: Iterable[Slot], wanted: Prefix) -> Reuse[Slot] | None:
        """Return the slot among these whose cells serve best where they are; the smallest of equal ones."""
        return self._best(slots, wanted, self._cuts_in_place)

    def _cuts_copy(self, _source: PrefixSource, _shared: int) -> bool:
        """Return whether the last cells of a copy can be dropped alone."""
        return not self._traits.needs_checkpoints

    def _cuts_in_place(self, slot: Slot, shared: int) -> bool:
        """Return whether the cells of a slot can be dropped alone, except the first ones."""
        return self._traits.can_trim and not (self._traits.windowed and shared < slot.floor)

    def _best(self, sources: Iterable[S], wanted: Prefix, can_cut: Callable[[S, int], bool]) -> Reuse[S] | None:
        """Return the most cells to reuse, and the smallest source of equal ones.

        `can_cut` returns whether the cells of a source, except so many first ones, can be dropped alone.
        """
        best: Reuse[S] | None = None
        most = smallest = 0
        for source in sources:
            size = source.size
            at = most - (size < smallest)  # a better one shares this token, too: most sources do not
            if at < min(size, wanted.size) and source.tokens[at] == wanted.tokens[at]:
                shared = source.prefix.common(wanted)
                found = self._within(source, wanted, shared, can_cut) if shared > at else None
                if found and found.tokens > at:
                    best, most, smallest = found, found.tokens, size
        return best

    def _within(self, source: S, wanted: Prefix, shared: int, can_cut: Callable[[S, int], bool]) -> Reuse[S] | None:
        """Return which of the shared cells of a source can be reused."""
        if shared == source.size or can_cut(source, shared):
            return Reuse(source, shared)
        checkpoint = self._store.find_checkpoint(Prefix(wanted.tokens, shared, wanted.partition))
        return Reuse(source, checkpoint.size, checkpoint) if checkpoint else None
