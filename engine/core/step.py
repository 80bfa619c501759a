"""One step: the contract between the scheduler, which decides, and a runner, which computes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias

from engine.core.sequence import Sequence
from engine.core.token import Score, Token

SCORED_AT_ONCE = 64
"""Rows. The most that one pass scores, so that a runner needs room for these logits and one row a slot."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Drop the cells of `seq_id` from position `start` on; 0 drops all."""

    seq_id: int
    start: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Replace the cells of `target` by the first `tokens` cells of `source`, which keeps its own."""

    source: int
    target: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Swap:
    """Exchange the cells of two slots. Both hold cells."""

    one: int
    other: int


@dataclass(frozen=True, slots=True)
class Save:
    """Copy the cells of `seq_id` to host memory under a new key. The slot keeps them."""

    key: int
    seq_id: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Replace the cells of `seq_id` by the first `tokens` cells saved under a key, which stay saved."""

    key: int
    seq_id: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Free the cells saved under a key, if they could be saved."""

    key: int


@dataclass(frozen=True, slots=True)
class Close:
    """Free what is held for a sequence that has ended, besides its cells."""

    sequence: Sequence


CellChange: TypeAlias = Removal | Copy | Swap | Save | Restore | Forget
Change: TypeAlias = CellChange | Close


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one sequence that a pass computes, from the first uncomputed one on.

    The slot is recorded when the plan is made, because a cancel may take it from the sequence during the pass.
    """

    sequence: Sequence
    """The sequence."""
    count: int
    """Number of known tokens to compute."""
    sample: bool
    """True if a token is drawn after the last known one."""
    score: bool = False
    """True if each row gives the `Score` of the prompt token that follows it."""
    draft: tuple[int, ...] = ()
    """Draft tokens, computed after the known ones. Each one that is accepted, after all before it, has the token
    behind it drawn in the same pass.
    """
    seq_id: int = field(init=False)
    """The slot that the sequence held."""
    start: int = field(init=False)
    """Number of the sequence's tokens that were computed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seq_id", self.sequence.seq_id)
        object.__setattr__(self, "start", self.sequence.computed)

    @property
    def tokens(self) -> list[int]:
        """The tokens of its rows."""
        return [*self.sequence.tokens[self.start : self.start + self.count], *self.draft]

    @property
    def scored(self) -> list[int]:
        """The tokens that its rows score, one a row from its first; the row of the prompt's last token scores none."""
        if not self.score:
            return []
        return self.sequence.tokens[self.start + 1 : min(self.start + self.count + 1, self.sequence.prompt)]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A pass through the model."""

    chunks: tuple[Chunk, ...]
    """One a sequence, in ascending order of `seq_id`."""
    decode: bool
    """True if it is a decode pass: each chunk is one known token, with or without a draft. That token is the last of
    its sequence, or one of a prompt that rides along.
    """

    @property
    def tokens(self) -> int:
        """Number of tokens to compute."""
        return sum(chunk.count + len(chunk.draft) for chunk in self.chunks)

    @property
    def depth(self) -> int:
        """Tokens computed before its chunks, as an average over its tokens."""
        return sum(chunk.count * chunk.start for chunk in self.chunks) // max(1, self.tokens)


class Outcome(Enum):
    """The outcome of a pass."""

    DONE = "done"
    ABORTED = "aborted"
    NO_ROOM = "no room"


@dataclass(frozen=True, slots=True)
class DrawFailure:
    """No token could be drawn for one sequence. The others of the step are not affected."""

    message: str


Draw: TypeAlias = Token | DrawFailure


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a plan."""

    outcome: Outcome
    """If not DONE, nothing was computed: the pass was aborted or found no room for its cells."""
    draws: tuple[tuple[Draw, ...], ...]
    """For each chunk that samples, in the plan's order: the accepted draft tokens, then the token drawn after them.
    The last one may be a failure. Empty unless DONE.
    """
    seconds: float
    """Duration of the pass."""
    scores: tuple[tuple[Score, ...], ...] = ()
    """For each chunk that scores, in the plan's order: the scores of `Chunk.scored`. Empty unless DONE."""


class Runner(Protocol):
    """Computes plans. Only `abort` may be called from another thread. `close` frees all that is held for a sequence."""

    def remove(self, removal: Removal) -> None:
        """Drop cells. Fast.

        Raises:
            EngineFault: the model cannot drop a part of a sequence.
        """

    def copy(self, copy: Copy) -> None:
        """Copy one or more cells. The cost grows with the cells of the source.

        Raises:
            EngineFault: the copy failed.
        """

    def swap(self, swap: Swap) -> None:
        """Exchange the cells of two slots. The cost grows with the cells of both.

        Raises:
            EngineFault: the exchange failed.
        """

    def save(self, save: Save) -> bool:
        """Copy cells to host memory. Return whether there was memory for them. The cost grows with the cells."""

    def restore(self, restore: Restore) -> None:
        """Copy saved cells to a slot. The cost grows with all cells saved under the key.

        Raises:
            EngineFault: the copy failed.
        """

    def forget(self, forget: Forget) -> None:
        """Free saved cells. Fast."""

    def run(self, plan: StepPlan) -> StepResult:
        """Run one pass.

        Raises:
            EngineFault: the model can no longer be trusted, so the process must end.
        """

    def abort(self) -> None:
        """From any thread: end the current pass, or the next one unless `arm` comes first."""

    def arm(self) -> None:
        """Forget an earlier `abort`. Called before a pass, under the lock that guards `abort`."""

    def close(self, sequence: Sequence) -> None:
        """Free the sampler of a sequence. Does not change its cells. Repeatable."""


def carry_out(changes: Iterable[Change], runner: Runner) -> list[int]:
    """Apply changes in order. Return the keys under which there was no memory to save."""
    lost = []
    for change in changes:
        match change:
            case Removal():
                runner.remove(change)
            case Copy():
                runner.copy(change)
            case Swap():
                runner.swap(change)
            case Save():
                if not runner.save(change):
                    lost.append(change.key)
            case Restore():
                runner.restore(change)
            case Forget():
                runner.forget(change)
            case Close(sequence):
                runner.close(sequence)
    return lost
