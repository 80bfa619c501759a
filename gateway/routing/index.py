"""Replicas by the blocks that they hold."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from gateway.routing.blocks import Blocks

ReplicaT = TypeVar("ReplicaT", bound=Hashable)


class HolderIndex(Generic[ReplicaT]):
    """Finds the replicas that hold the longest part of a prompt, in a time that grows with its blocks."""

    def __init__(self) -> None:
        self._holders: dict[int, list[ReplicaT]] = {}

    def add(self, replica: ReplicaT, blocks: Iterable[int]) -> None:
        """Record a holder of blocks that it does not hold yet."""
        for block in blocks:
            self._holders.setdefault(block, []).append(replica)

    def remove(self, replica: ReplicaT, blocks: Iterable[int]) -> None:
        """Remove a holder of blocks."""
        for block in blocks:
            holders = self._holders[block]
            holders.remove(replica)
            if not holders:
                del self._holders[block]

    def holders(self, block: int) -> Sequence[ReplicaT]:
        """Return the replicas that hold a block."""
        return self._holders.get(block, ())

    def longest(self, blocks: Blocks) -> Iterator[tuple[int, Sequence[ReplicaT]]]:
        """Yield lengths in blocks, the longest first, each with the replicas that hold so much of a prompt.

        Replicas that hold more than that are among them. Lengths with the same replicas as a longer one are left out.
        """
        found = []
        for block in blocks:
            holders = self._holders.get(block)
            if holders is None:
                break
            found.append(holders)
        last = 0
        for length in range(len(found), 0, -1):
            holders = found[length - 1]
            if len(holders) != last:
                last = len(holders)
                yield length, holders
