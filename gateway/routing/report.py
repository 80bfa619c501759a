"""Reports of the blocks that a replica holds: changes with a sequence number, or everything."""

from collections import deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Report:
    """Changes of a replica's held blocks since an earlier state. It applies to every state from `base` to `sequence`.

    So reports may be lost, repeated, late and out of order, as long as one of them begins early enough.
    """

    epoch: int
    """Identifies the replica's process. A later one has a larger epoch, and begins with nothing."""
    base: int
    """Sequence number of the earlier state. State 0 holds nothing, so that with 0 the report is complete."""
    sequence: int
    """Sequence number of the reported state."""
    held: frozenset[int]
    """Blocks that changed since `base` and are held now."""
    dropped: frozenset[int]
    """Blocks that changed since `base` and are not held now."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON: hashes of 16 hexadecimal digits, one after another."""
        return {
            "epoch": self.epoch,
            "base": self.base,
            "sequence": self.sequence,
            "held": _to_hex(self.held),
            "dropped": _to_hex(self.dropped),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Report":
        """Return the report of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: It is none.
        """
        epoch, base, sequence = (int(value[name]) for name in ("epoch", "base", "sequence"))
        return cls(epoch, base, sequence, _from_hex(value["held"]), _from_hex(value["dropped"]))


def _to_hex(blocks: AbstractSet[int]) -> str:
    return "".join(f"{block:016x}" for block in sorted(blocks))


def _from_hex(text: str) -> frozenset[int]:
    return frozenset(int(text[start : start + 16], 16) for start in range(0, len(text), 16))


class HeldBlocks:
    """The blocks that a replica holds, and their latest changes."""

    def __init__(self, epoch: int) -> None:
        """Begin with nothing. `epoch` is larger than that of every earlier process of the replica."""
        self._epoch = epoch
        self._held: frozenset[int] = frozenset()
        self._changes: deque[frozenset[int]] = deque()  # of the last states, oldest first
        self._logged = 0
        self.sequence = 0
        """Sequence number of the state."""

    def update(self, held: AbstractSet[int]) -> None:
        """Replace the held blocks. The log forgets changes that would be larger than a complete report."""
        changed = frozenset(self._held ^ held)
        if not changed:
            return
        self._held = frozenset(held)
        self.sequence += 1
        self._changes.append(changed)
        self._logged += len(changed)
        while self._changes and self._logged > len(self._held):
            self._logged -= len(self._changes.popleft())

    def report(self, since: int = 0) -> Report:
        """Return the changes since a state, or everything if that is less or the state is too old or unknown."""
        if not self.sequence - len(self._changes) <= since <= self.sequence:
            return Report(self._epoch, 0, self.sequence, self._held, frozenset())
        latest = [self._changes[index] for index in range(since - self.sequence, 0)]
        changed = frozenset().union(*latest)
        return Report(self._epoch, since, self.sequence, changed & self._held, changed - self._held)

    def latest(self, states: int) -> Report:
        """Return the changes of the last states, for a channel on which routers cannot ask."""
        return self.report(max(self.sequence - states, 0))
