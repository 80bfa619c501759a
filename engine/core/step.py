"""One step: the contract between the scheduler, which decides, and a runner, which computes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias

from engine.core.sequence import Sequence
from engine.core.token import Score, Token

SCORED_AT_ONCE = 64
"""Rows. A pass scores no more, so a runner needs room for the logits of these and of one row a slot."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Drop the cells of `seq_id` from position `start` on. `start` 0 drops them all."""

    seq_id: int
    start: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Make the cells of `target` the first `tokens` cells of `source`, which keeps its own."""

    source: int
    target: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Swap:
    """Let two slots, each of which holds cells, exchange them."""

    one: int
    other: int


@dataclass(frozen=True, slots=True)
class Save:
    """Copy the cells of `seq_id`, which keeps its own, to host memory, under a new key."""

    key: int
    seq_id: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Make the cells of `seq_id` the first `tokens` cells of those saved under a key, which stay saved."""

    key: int
    seq_id: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Free what was saved under a key, if it could be saved."""

    key: int


@dataclass(frozen=True, slots=True)
class Close:
    """Free what is held for a sequence that has ended, besides its cells."""

    sequence: Sequence


CellChange: TypeAlias = Removal | Copy | Swap | Save | Restore | Forget
Change: TypeAlias = CellChange | Close


@dataclass(frozen=True, slots=True)
class Chunk:
    """Compute `count` tokens of a sequence, from its first uncomputed one; draw a token after the last if `sample`.

    Where the tokens go is noted when the plan is made: a cancel may take the slot from the sequence during the pass.

    Attributes:
        draft: guesses at the tokens that follow. They are computed behind the known ones, and each of them that is
            drawn, after all before it, has the token behind it drawn in the same pass.
        score: whether each row gives the `Score` of the token that follows it, as far as that one is of the prompt.
        seq_id: the slot the sequence held.
        start: how many of its tokens were computed.
    """

    sequence: Sequence
    count: int
    sample: bool
    score: bool = False
    draft: tuple[int, ...] = ()
    seq_id: int = field(init=False)
    start: int = field(init=False)

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
    """What one pass through the model computes. Chunks stand in ascending order of `seq_id`, one a sequence.

    Attributes:
        decode: whether every chunk is one known token, the last of its sequence or one of a prompt that rides along,
            with guesses behind it or none; else it is a prompt pass.
    """

    chunks: tuple[Chunk, ...]
    decode: bool

    @property
    def tokens(self) -> int:
        """Tokens it computes."""
        return sum(chunk.count + len(chunk.draft) for chunk in self.chunks)

    @property
    def depth(self) -> int:
        """Tokens that were computed before each of its own chunks, on average over its tokens."""
        return sum(chunk.count * chunk.start for chunk in self.chunks) // max(1, self.tokens)


class Outcome(Enum):
    """How a pass ended."""

    DONE = "done"
    ABORTED = "aborted"
    NO_ROOM = "no room"


@dataclass(frozen=True, slots=True)
class DrawFailure:
    """No token could be drawn for this one sequence. The others of the step are well."""

    message: str


Draw: TypeAlias = Token | DrawFailure


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of a plan.

    Attributes:
        outcome: DONE; or nothing was computed, because the pass was aborted or found no room for its cells.
        draws: for each chunk that samples, in the plan's order, the token drawn after its last one, preceded by those
            of its draft that were drawn; the last one may be a failure. Empty unless DONE.
        seconds: how long the pass took.
        scores: for each chunk that scores, in the plan's order, a score for each of `Chunk.scored`; empty unless DONE.
    """

    outcome: Outcome
    draws: tuple[tuple[Draw, ...], ...]
    seconds: float
    scores: tuple[tuple[Score, ...], ...] = ()


class Runner(Protocol):
    """Computes plans. Called from one thread only, save `abort`. What it holds for a sequence it frees in `close`."""

    def remove(self, removal: Removal) -> None:
        """Drop cells. Quick. Raises `EngineFault` for part of a sequence that the model cannot drop."""

    def copy(self, copy: Copy) -> None:
        """Copy cells, one or more. Costs by the cells that the source holds. Raises `EngineFault` where it cannot."""

    def swap(self, swap: Swap) -> None:
        """Exchange the cells of two slots. Costs by the cells of both. Raises `EngineFault` where it cannot."""

    def save(self, save: Save) -> bool:
        """Copy cells to host memory; gives whether there was memory for them. Costs by the cells."""

    def restore(self, restore: Restore) -> None:
        """Copy saved cells to a slot. Costs by all cells saved under the key. Raises `EngineFault` where it cannot."""

    def forget(self, forget: Forget) -> None:
        """Free saved cells. Quick."""

    def run(self, plan: StepPlan) -> StepResult:
        """Make one pass. Raises `EngineFault` when the model can no longer be trusted: the process must end."""

    def abort(self) -> None:
        """From any thread: end the pass that runs now, or the next one unless `arm` comes first."""

    def arm(self) -> None:
        """Forget an earlier `abort`. Called before a pass, under the lock that guards `abort`."""

    def close(self, sequence: Sequence) -> None:
        """Free what was held for a sequence (its sampler). Does not touch its cells. Repeatable."""


def carry_out(changes: Iterable[Change], runner: Runner) -> list[int]:
    """Let a runner do what was decided, in order; return the keys under which there was no memory to save."""
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
