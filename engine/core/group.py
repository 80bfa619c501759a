"""The sequences of one request."""

from collections import deque
from collections.abc import Iterable
from itertools import islice

from engine.core.sequence import Sequence, State
from engine.request import GenerationRequest

MOST_DETAILS = 2**21
"""Tokens and alternatives of an answer without streaming, and of an echoed prompt in a stream. Each takes about 0.1 KB
of the gateway's memory: until all choices have ended, or until the prompt, which is one event, is sent."""
TOO_MANY_DETAILS = (
    "the tokens of an answer without streaming, or of an echoed prompt, and their alternatives may be "
    f"{MOST_DETAILS:,} at most"
)


class SequenceGroup:
    """One request. Its sequences wait, run and end independently; the group is over when all have ended."""

    key: int
    """Identifies the request in the frames between the processes."""
    client: str
    """Client that shares the queue with others."""
    weight: float
    """Share of the client, relative to that of others."""
    priority: int
    """Requests of the client with lower values start earlier."""
    cost: int
    """Estimated number of tokens to compute for its first sequence."""
    prompt_tokens: tuple[int, ...]
    """Number of tokens of each prompt."""
    waiting: deque[Sequence]
    """Sequences without a slot, in the order in which they get one."""
    running: set[Sequence]
    """Sequences that hold a slot."""
    generated: int
    """Number of tokens that all its sequences have generated."""
    started: bool
    """True if a sequence has ever held a slot."""

    def __init__(self, key: int, request: GenerationRequest, sequences: Iterable[Sequence]) -> None:
        """Create a group of sequences that wait.

        Args:
            key: identifies the request in the frames between the processes.
            request: the request.
            sequences: one for each choice, in order.
        """
        self.key = key
        self.client = request.client
        self.weight = request.weight
        self.priority = request.priority or 0
        self.waiting = deque(sequences)
        self.prompt_tokens = tuple(sequence.prompt for sequence in islice(self.waiting, 0, None, request.n))
        self.cost = self.waiting[0].cost if self.waiting else 0
        self.running: set[Sequence] = set()
        self.generated = 0
        self.started = False
        self._read: dict[int, int] = {}
        self._cached: dict[int, int] = {}
        each = _details_per_token(request)
        self._details_per_token = 0 if request.stream else each
        echoed = [sequence.prompt for sequence in self.waiting if sequence.echo]
        # Of the ends of its choices, as far as they are known; in a stream, of its largest event.
        self._details = each * (max(echoed, default=0) if request.stream else sum(echoed))

    @property
    def over(self) -> bool:
        """True if every sequence has ended."""
        return not self.waiting and not self.running

    @property
    def too_detailed(self) -> bool:
        """True if its answer takes too much memory."""
        return self._details > MOST_DETAILS

    @property
    def phase(self) -> str:
        """`queued`, `prefill` or `decode`, as reported for a cancel."""
        if not self.running:
            return "queued"
        return "decode" if self.generated else "prefill"

    @property
    def read_tokens(self) -> int:
        """Number of prompt tokens that its sequences had computed or reused when they left. Each prompt counts once."""
        return sum(self._read.values())

    @property
    def cached_tokens(self) -> int:
        """Number of prompt tokens with reused cells: of each prompt those of its first choice, once that has left."""
        return sum(self._cached.values())

    def start(self) -> Sequence:
        """Move the next waiting sequence to the running ones and return it."""
        sequence = self.waiting.popleft()
        sequence.enter(State.RUNNING)
        self.running.add(sequence)
        return sequence

    def end_reasoning(self) -> None:
        """End the reasoning of its choices where it has begun."""
        for sequence in (*self.waiting, *self.running):
            if sequence.reasoning is not None:
                sequence.reasoning.end()

    def count_token(self) -> None:
        """Count a generated token."""
        self.generated += 1
        self._details += self._details_per_token

    def put_back(self, sequence: Sequence) -> None:
        """Move a running sequence to the head of the waiting ones. Its known tokens stay."""
        sequence.enter(State.WAITING)
        self._leave(sequence)
        sequence.computed = 0
        self.waiting.appendleft(sequence)

    def end(self, sequence: Sequence) -> None:
        """End a running sequence."""
        sequence.enter(State.ENDED)
        self._leave(sequence)

    def end_all(self) -> None:
        """End every sequence."""
        for sequence in list(self.running):
            self.end(sequence)
        for sequence in self.waiting:
            sequence.enter(State.ENDED)
        self.waiting.clear()

    def _leave(self, sequence: Sequence) -> None:
        """Remove a running sequence, and record how much of its prompt was read."""
        self.running.remove(sequence)
        prompt, choice = divmod(sequence.choice, sequence.request.n)
        self._read[prompt] = max(self._read.get(prompt, 0), sequence.prompt - sequence.unread)
        if not choice:
            self._cached[prompt] = sequence.cached  # one that was put back may find more when it returns


def _details_per_token(request: GenerationRequest) -> int:
    """Return how much the answer has of each token: the token and its alternatives. 0 if it has no details."""
    detailed = request.token_ids or request.logprobs is not None
    return 1 + (request.logprobs or 0) if detailed else 0
