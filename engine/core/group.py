"""The sequences of one request, and where they are."""

from collections import deque
from collections.abc import Iterable

from engine.core.sequence import Sequence, State


class SequenceGroup:
    """One request: its sequences wait, run and end, each on its own; the group is over when all have ended.

    Attributes:
        key: names the request on the wire.
        prompt_tokens: tokens of each prompt.
        waiting: sequences without a slot, in the order they will get one.
        running: sequences that hold a slot.
        generated: tokens generated in all.
        started: whether its first sequence has ever held a slot.
    """

    def __init__(self, key: int, sequences: Iterable[Sequence], prompt_tokens: Iterable[int]) -> None:
        self.key = key
        self.waiting = deque(sequences)
        self.prompt_tokens = tuple(prompt_tokens)
        self.running: set[Sequence] = set()
        self.generated = 0
        self.started = False

    @property
    def over(self) -> bool:
        """Whether every sequence has ended."""
        return not self.waiting and not self.running

    @property
    def phase(self) -> str:
        """`queued`, `prefill` or `decode`: what a cancel would interrupt."""
        if not self.running:
            return "queued"
        return "decode" if self.generated else "prefill"

    def start(self) -> Sequence:
        """Move the next waiting sequence to the running ones."""
        sequence = self.waiting.popleft()
        sequence.enter(State.RUNNING)
        self.running.add(sequence)
        return sequence

    def put_back(self, sequence: Sequence) -> None:
        """Move a running sequence to the head of the waiting ones. What it knows stays."""
        sequence.enter(State.WAITING)
        self.running.remove(sequence)
        self.waiting.appendleft(sequence)

    def end(self, sequence: Sequence) -> None:
        """Take a running sequence out for good."""
        sequence.enter(State.ENDED)
        self.running.remove(sequence)

    def end_all(self) -> None:
        """Take every sequence out for good."""
        for sequence in list(self.running):
            self.end(sequence)
        for sequence in self.waiting:
            sequence.enter(State.ENDED)
        self.waiting.clear()
