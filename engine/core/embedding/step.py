"""Texts on their way to vectors, and the contract with an embedder, which computes them."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from engine.core.step import Outcome


@dataclass(frozen=True, slots=True)
class EmbeddingLimits:
    """What an embedder can take.

    Attributes:
        rows: tokens of one pass.
        cells: tokens of all texts that are under way.
        texts: texts that are under way; each has a `seq_id` below this.
        longest: tokens of one text.
        splits: whether a text may be computed in several passes; one that is read in both directions may not.
    """

    rows: int
    cells: int
    texts: int
    longest: int
    splits: bool


class EmbeddingText:
    """One input of a request.

    Attributes:
        job: the request.
        index: which of its inputs.
        tokens: what to compute.
        computed: how many of them are.
        seq_id: the embedder's sequence that it holds, -1 before.
    """

    def __init__(self, job: "EmbeddingJob", index: int, tokens: list[int]) -> None:
        self.job = job
        self.index = index
        self.tokens = tokens
        self.computed = 0
        self.seq_id = -1

    @property
    def pending(self) -> int:
        """Tokens that are not computed."""
        return len(self.tokens) - self.computed


class EmbeddingJob:
    """One request: its texts wait, are under way and end, each on its own.

    Attributes:
        key: names the request on the wire.
        request_id: for the logs.
        prompt_tokens: tokens of each text.
        waiting: texts of which nothing is computed, in order.
        open: texts that have not ended.
        started: whether any of them was ever under way.
    """

    def __init__(self, key: int, request_id: str, inputs: Iterable[list[int]]) -> None:
        self.key = key
        self.request_id = request_id
        self.waiting = deque(EmbeddingText(self, index, tokens) for index, tokens in enumerate(inputs))
        self.prompt_tokens = tuple(len(text.tokens) for text in self.waiting)
        self.open = len(self.waiting)
        self.started = False


@dataclass(frozen=True, slots=True)
class EmbeddingChunk:
    """Compute `count` tokens of a text, from its first uncomputed one.

    As in `engine.core.step.Chunk`, where they go is noted when the pass is planned.

    Attributes:
        last: whether the text ends with them, so that its vector is due.
        seq_id: the sequence that the text held.
        start: how many of its tokens were computed.
    """

    text: EmbeddingText
    count: int
    last: bool = field(init=False)
    seq_id: int = field(init=False)
    start: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "last", self.count == self.text.pending)
        object.__setattr__(self, "seq_id", self.text.seq_id)
        object.__setattr__(self, "start", self.text.computed)


EmbeddingPlan: TypeAlias = tuple[EmbeddingChunk, ...]
"""A pass of the embedder."""


@dataclass(frozen=True, slots=True)
class EmbeddingPass:
    """What came of a pass.

    Attributes:
        outcome: DONE or ABORTED.
        vectors: for each chunk that is its text's last, in order, what `EmbeddingResult` tells of; None where the
            model gave no numbers. Empty unless DONE.
        seconds: how long the pass took.
    """

    outcome: Outcome
    vectors: tuple[bytes | None, ...]
    seconds: float


class Embedder(Protocol):
    """Computes embeddings. Called from one thread only, save `abort`."""

    def drop(self, seq_id: int) -> None:
        """Forget a text that will not be finished. Quick."""

    def run(self, chunks: EmbeddingPlan) -> EmbeddingPass:
        """Make one pass, and forget the texts that it finished.

        Raises `EngineFault` when the model can no longer be trusted: the process must end.
        """

    def abort(self) -> None:
        """From any thread: end the pass that runs now, or the next one unless `arm` comes first."""

    def arm(self) -> None:
        """Forget an earlier `abort`. Called before a pass, under the lock that guards `abort`."""
