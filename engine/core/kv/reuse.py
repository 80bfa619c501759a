"""Search for cells to reuse: in the slots, and in host memory."""

from collections.abc import Iterable
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
        """Return the best source among these slots and the store."""
        sources: list[PrefixSource] = [*slots, *self._store.find(wanted)]
        return self.best_of(sources, wanted)

    def best_of(self, sources: Iterable[S], wanted: Prefix) -> Reuse[S] | None:
        """Return the source with most reusable tokens; the smallest of equal ones."""
        best: Reuse[S] | None = None
        for source in sources:
            found = self.within(source, wanted)
            if found and (not best or (found.tokens, -source.size) > (best.tokens, -best.source.size)):
                best = found
        return best

    def within(self, source: S, wanted: Prefix) -> Reuse[S] | None:
        """Return the cells of one source that can be reused."""
        shared = source.prefix.common(wanted)
        if not shared:
            return None
        if self._traits.can_trim or shared == source.size:
            return Reuse(source, shared)
        checkpoint = self._store.find_checkpoint(Prefix(wanted.tokens, shared, wanted.partition))
        return Reuse(source, checkpoint.size, checkpoint) if checkpoint else None
