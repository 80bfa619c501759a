"""One step: the contract between the scheduler, which decides, and a runner, which computes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from engine.core.kv.cache import KVCache
from engine.core.kv.cell_changes import CellChange
from engine.core.sequence import Sequence
from engine.core.token import Score, Token
from engine.request import AdapterSet

SCORED_AT_ONCE = 64
"""Rows. The maximum that one step scores. A runner needs room for their logits and for one row a slot."""


@dataclass(frozen=True, slots=True)
class Close:
    """Free the resources of a sequence, except its cells."""

    sequence: Sequence
    """The sequence, which has ended."""


Change: TypeAlias = CellChange | Close


@dataclass(slots=True, eq=False)
class Chunk:
    """Tokens of one sequence that a step computes, from the first uncomputed one on.

    The slot is recorded when the plan is made, because a cancel may take it from the sequence during the step.
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
    """Draft tokens, computed after the known ones. If one and all before it are accepted, the next token is
    drawn in the same step.
    """
    seq_id: int = field(init=False)
    """The slot that the sequence held."""
    start: int = field(init=False)
    """Number of the sequence's tokens that were computed."""

    def __post_init__(self) -> None:
        self.seq_id = self.sequence.seq_id
        self.start = self.sequence.computed

    def one_further(self) -> "Chunk":
        """Return the chunk with the token that is drawn after this one, before it is known."""
        chunk = Chunk(self.sequence, 1, self.sample)
        chunk.start = self.start + self.count
        return chunk

    @property
    def rows(self) -> int:
        """Number of tokens to compute."""
        return self.count + len(self.draft)

    @property
    def tokens(self) -> list[int]:
        """The tokens of its rows."""
        return [*self.sequence.tokens[self.start : self.start + self.count], *self.draft]

    @property
    def scored(self) -> list[int]:
        """The tokens that its rows score, one a row from its first; the row of the last prompt token has no score."""
        if not self.score:
            return []
        return self.sequence.tokens[self.start + 1 : min(self.start + self.count + 1, self.sequence.prompt)]


@dataclass(slots=True, eq=False)
class StepPlan:
    """The plan of one step. It does not change."""

    chunks: tuple[Chunk, ...]
    """One a sequence, in ascending order of `seq_id`."""
    decode: bool
    """True if it is a decode step: each chunk is the last known token of its sequence, with or without draft tokens."""
    adapters: AdapterSet = ()
    """The LoRA adapters of all its sequences."""
    drafted: int = field(init=False)
    """Number of draft tokens to compute."""
    tokens: int = field(init=False)
    """Number of tokens to compute, draft tokens included."""

    def __post_init__(self) -> None:
        self.drafted = sum([len(chunk.draft) for chunk in self.chunks])
        self.tokens = sum([chunk.count for chunk in self.chunks]) + self.drafted

    def weight_passes(self, bridge: Callable[[int, int], bool] = lambda *_: False) -> Iterator["StepPlan"]:
        """Yield the plan in parts that need a weight pass each where each slot has cells of its own.

        A part has neighbouring slots with equally many rows.

        Args:
            bridge: returns whether two slots of a decode step are computed as if they were neighbours.
        """
        part: list[Chunk] = []
        for chunk in self.chunks:
            if part and not self._share_pass(part[-1], chunk, bridge):
                yield replace(self, chunks=tuple(part))
                part = []
            part.append(chunk)
        yield self if len(part) == len(self.chunks) else replace(self, chunks=tuple(part))

    def _share_pass(self, one: Chunk, following: Chunk, bridge: Callable[[int, int], bool]) -> bool:
        if one.rows != following.rows:
            return False
        return following.seq_id == one.seq_id + 1 or (self.decode and bridge(one.seq_id, following.seq_id))

    @property
    def depth(self) -> int:
        """Tokens computed before its chunks, as an average over its tokens."""
        return sum(chunk.count * chunk.start for chunk in self.chunks) // max(1, self.tokens)


class Outcome(Enum):
    """The outcome of a step."""

    DONE = "done"
    """Every token was computed."""
    ABORTED = "aborted"
    """The step was aborted."""
    NO_ROOM = "no room"
    """The KV cache had no room for its cells."""


@dataclass(frozen=True, slots=True)
class DrawFailure:
    """No token could be drawn for one sequence. The others of the step are not affected."""

    message: str
    """The reason, for the client."""
    code: str = "engine_failed"
    """Stable identifier for programs."""
    param: str | None = None
    """Field of the request that is the reason; None for a failure of the engine."""


Draw: TypeAlias = Token | DrawFailure


class StepResult(NamedTuple):
    """The result of a plan."""

    outcome: Outcome
    """DONE, or the reason why no token was computed."""
    draws: tuple[tuple[Draw, ...], ...]
    """For each chunk that samples, in the plan's order: the accepted draft tokens, then the token drawn after them.
    The last one may be a failure. Empty unless DONE.
    """
    seconds: float
    """Duration of the step."""
    scores: tuple[tuple[Score, ...], ...] = ()
    """For each chunk that scores, in the plan's order: the scores of `Chunk.scored`. Empty unless DONE."""
    whole_rows: int = 0
    """Number of rows whose logits of the whole vocabulary were copied to the host."""


class Runner(Protocol):
    """Runs step plans. Only `abort` may be called from another thread."""

    @property
    def cache(self) -> KVCache:
        """The cells of the slots. Changed only between two steps."""

    def run(self, plan: StepPlan) -> StepResult:
        """Run one step.

        Raises:
            EngineFault: the model can no longer be trusted, so the process must end.
        """

    def abort(self) -> None:
        """End the current step, or the next one unless `arm` comes first. Any thread may call it."""

    def arm(self) -> None:
        """Clear an earlier `abort`. Called before a step that follows no other one, under the lock of `abort`."""

    def close(self, sequence: Sequence) -> None:
        """Free the sampler and all other resources of a sequence, except its cells. Repeatable."""
