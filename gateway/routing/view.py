"""The router's view of one replica: its blocks as reported, those that are on their way to it, and its load."""

from collections import Counter
from collections.abc import Iterable

from gateway.routing.blocks import Blocks
from gateway.routing.report import Report


class ReplicaView:
    """A router's view of a replica.

    A block is held if the latest report says so, or if a request with it was routed there and has not expired.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        """Requests that the replica runs at the same time."""
        self.open = 0
        """Requests of this router that it has and that have not ended."""
        self.others = 0
        """Requests of other routers that it has, as it has reported."""
        self.epoch = 0
        """Epoch of the latest report."""
        self.sequence = 0
        """Sequence number of the state in the latest report."""
        self._reported: set[int] = set()
        self._expected: Counter[int] = Counter()

    @property
    def requests(self) -> int:
        """Requests that it has, running and waiting, those of other routers included."""
        return self.open + self.others

    @property
    def busy(self) -> float:
        """Requests that it has for each slot."""
        return self.requests / self.slots

    def holds(self, block: int) -> bool:
        """Return whether a block is held."""
        return block in self._reported or block in self._expected

    def blocks(self) -> set[int]:
        """Return all held blocks."""
        return self._reported | self._expected.keys()

    def expect(self, blocks: Blocks) -> Iterable[int]:
        """Record blocks of a routed request. Return those that are new."""
        new = [block for block in blocks if not self.holds(block)]
        self._expected.update(blocks)
        return new

    def expire(self, blocks: Blocks) -> Iterable[int]:
        """Forget blocks of a routed request. Return those that are gone."""
        for block in blocks:
            self._expected[block] -= 1
            if not self._expected[block]:
                del self._expected[block]
        return [block for block in blocks if not self.holds(block)]

    def apply(self, report: Report) -> tuple[Iterable[int], Iterable[int]] | None:
        """Take over a report. Return the new blocks and the gone ones, or None if an earlier report is missing."""
        if (report.epoch, report.sequence) <= (self.epoch, self.sequence):
            return (), ()  # a later one has come before
        if report.base and (report.epoch, report.base) > (self.epoch, self.sequence):
            return None
        dropped = report.dropped if report.base else self._reported - report.held
        self.epoch, self.sequence = report.epoch, report.sequence
        new = [block for block in report.held if not self.holds(block)]
        gone = [block for block in dropped if block in self._reported and block not in self._expected]
        self._reported -= dropped
        self._reported |= report.held
        return new, gone
