"""The state of embedding requests, and the contract between their scheduler and an embedder, which computes vectors."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from engine.core.step import Outcome
from engine.request import EmbeddingRequest


@dataclass(frozen=True, slots=True)
class EmbeddingLimits:
    """The limits of an embedder."""

    rows: int
    """Maximum number of tokens of one step."""
    cells: int
    """Maximum number of tokens of all running texts."""
    smallest: int
    """Number of cells of the first embedder. Another one with more replaces it for a longer text."""
    texts: int
    """Maximum number of running texts. Each has a `seq_id` below this."""
    longest: int
    """Maximum number of tokens of one text."""
    splits: bool
    """True if a text may be computed in several steps. With attention in both directions it may not."""

    def cells_for(self, tokens: int) -> int:
        """Return the number of cells of an embedder for a text of so many tokens.

        Beyond the smallest embedder they are a power of two, so that few embedders replace each other.
        """
        if tokens <= self.smallest:
            return self.smallest
        fitting: int = 1 << (tokens - 1).bit_length()
        return min(fitting, self.cells)


@dataclass(slots=True, eq=False)
class EmbeddingText:
    """One input of a request."""

    job: "EmbeddingJob"
    """The request that it belongs to."""
    index: int
    """Index of the input in the request."""
    tokens: list[int]
    """All its tokens."""
    computed: int = 0
    """Number of computed tokens."""
    wasted: int = 0
    """Number of its tokens in a step that was not over when its request ended."""
    charged: int = 0
    """Number of tokens that its client was charged for it."""
    seq_id: int = -1
    """The embedder's sequence that it holds; -1 before it starts."""

    @property
    def work(self) -> int:
        """Number of tokens that were computed for it."""
        return self.computed + self.wasted

    @property
    def pending(self) -> int:
        """Number of tokens that are not computed."""
        return len(self.tokens) - self.computed


class EmbeddingJob:
    """One request. Its texts wait, run and end independently."""

    key: int
    """Identifies the request in the frames between the processes."""
    client: str
    """Client that shares the queue with others."""
    weight: float
    """Share of the client, relative to that of others."""
    priority: int
    """Requests of the client with lower values start earlier."""
    prompt_tokens: tuple[int, ...]
    """Number of tokens of each text."""
    waiting: deque[EmbeddingText]
    """Texts that have not started, in order."""
    open: int
    """Number of texts that have not ended."""
    started: bool
    """True if a text has ever started."""
    computed: int
    """Number of computed tokens of all its texts."""

    def __init__(self, key: int, request: EmbeddingRequest, inputs: Iterable[list[int]]) -> None:
        """Create a job of texts that wait.

        Args:
            key: identifies the request in the frames between the processes.
            request: the request.
            inputs: the tokens of each text.
        """
        self.key = key
        self.client = request.client
        self.weight = request.weight
        self.priority = request.priority or 0
        self.waiting = deque(EmbeddingText(self, index, tokens) for index, tokens in enumerate(inputs))
        self.prompt_tokens = tuple(len(text.tokens) for text in self.waiting)
        self.open = len(self.waiting)
        self.started = False
        self.computed = 0


@dataclass(slots=True, eq=False)
class EmbeddingChunk:
    """Tokens of one text that a step computes, from the first uncomputed one on.

    The sequence is recorded when the step is planned, as in `engine.core.step.Chunk`.
    """

    text: EmbeddingText
    """The text."""
    count: int
    """Number of tokens to compute."""
    last: bool = field(init=False)
    """True if the text ends with these tokens, so that the step returns its vector."""
    seq_id: int = field(init=False)
    """The sequence that the text held."""
    start: int = field(init=False)
    """Number of the text's tokens that were computed."""

    def __post_init__(self) -> None:
        self.last = self.count == self.text.pending
        self.seq_id = self.text.seq_id
        self.start = self.text.computed


EmbeddingPlan: TypeAlias = tuple[EmbeddingChunk, ...]
"""The plan of one step: a chunk of each text in it."""


@dataclass(frozen=True, slots=True)
class EmbeddingStepResult:
    """The result of a plan."""

    outcome: Outcome
    """DONE or ABORTED."""
    vectors: tuple[bytes | None, ...]
    """For each last chunk of a text, in the plan's order: the vector in the format of `EmbeddingResult`, or None if the
    model computed no finite numbers. Empty unless DONE.
    """
    seconds: float
    """Duration of the step."""


class Embedder(Protocol):
    """Runs plans. Only `abort` may be called from another thread."""

    on_progress: Callable[[], None]
    """Called now and then during a long step, which may take minutes where a text cannot be split. It must not
    raise."""

    def shut_down(self) -> None:
        """Free the cells. Repeatable; no other method but `abort` may be called afterwards."""

    def drop(self, seq_id: int) -> None:
        """Drop a text that will not be finished, with its cells. Fast."""

    def run(self, chunks: EmbeddingPlan) -> EmbeddingStepResult:
        """Run one step and drop the texts that it finished.

        Raises:
            EngineFault: the model can no longer be trusted, so the process must end.
        """

    def abort(self) -> None:
        """End the current step, or the next one unless `arm` comes first. Any thread may call it."""

    def arm(self) -> None:
        """Clear an earlier `abort`. Called before a step, under the lock that guards `abort`."""
