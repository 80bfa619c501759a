"""Changes of the cells in the KV cache, which a runner applies between two steps."""

from dataclasses import dataclass
from typing import TypeAlias

from engine.core.kv.prefix_file import FileChange


@dataclass(frozen=True, slots=True)
class Removal:
    """Drop the last cells of a slot."""

    seq_id: int
    """The slot."""
    start: int
    """Position of the first cell to drop; 0 drops all."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Drop cells of a slot, and move those behind them to their positions."""

    seq_id: int
    """The slot."""
    start: int
    """Position of the first cell to drop."""
    count: int
    """Number of cells to drop. At least one more follows."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Replace the cells of a slot by the first cells of another one."""

    source: int
    """The slot to copy from, which keeps its cells."""
    target: int
    """The slot to copy to."""
    tokens: int
    """Number of cells to copy."""


@dataclass(frozen=True, slots=True)
class Swap:
    """Exchange the cells of two slots. Both hold cells."""

    one: int
    """The first slot."""
    other: int
    """The second slot."""


@dataclass(frozen=True, slots=True)
class Save:
    """Copy the cells of a slot to host memory. The slot keeps them."""

    key: int
    """A new key for the saved cells."""
    seq_id: int
    """The slot."""
    partial: bool = False
    """True to copy only what `Rewind` needs: the recurrent state, or the cells of the sliding windows."""


@dataclass(frozen=True, slots=True)
class Restore:
    """Replace the cells of a slot by the first cells saved under a key."""

    key: int
    """The key of the cells, which stay saved."""
    seq_id: int
    """The slot."""
    tokens: int
    """Number of cells to copy."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """Roll a slot back to its first cells, by the state that was saved when it, or another slot, held only these."""

    key: int
    """The key of a partial state, which stays saved."""
    seq_id: int
    """The slot."""
    tokens: int
    """Number of cells that stay: as many as there were when the state was saved."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Free saved cells."""

    key: int
    """The key of the cells; without effect if they could not be saved."""


CellChange: TypeAlias = Removal | Shift | Copy | Swap | Save | Restore | Rewind | Forget | FileChange
