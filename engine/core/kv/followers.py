"""Prompts that wait for a neighbour to compute what they begin with, instead of computing it again beside it."""

from collections.abc import Iterable

from engine.core.kv.ledger import KVLedger
from engine.core.kv.prefix import Prefix
from engine.core.sequence import Sequence

WORTH_WAITING = 64
"""Tokens. Below one efficient prompt chunk, waiting costs more than it saves."""


class Followers:
    """Each follows a sequence that started before it, so none waits for itself, and the first of all never waits."""

    def __init__(self, ledger: KVLedger) -> None:
        self._ledger = ledger
        self._leaders: dict[Sequence, tuple[Sequence | None, int]] = {}

    def __contains__(self, sequence: Sequence) -> bool:
        """Whether a sequence waits."""
        return sequence in self._leaders

    def start(self, sequence: Sequence, earlier: Iterable[Sequence]) -> None:
        """Give a sequence what others hold of its prompt, or make it wait where one of them is about to hold more.

        While another one scores the prompt for it too, it waits in any case.
        """
        if scorer := _scorer(sequence, earlier):
            self._leaders[sequence] = scorer, sequence.prompt - 1
            return
        if not sequence.shares:
            return
        _, there = self._ledger.best_source(sequence)
        leader, shared = _longest_prefix(sequence, earlier)
        if leader and self._ledger.trims and shared >= max(sequence.computed, there) + WORTH_WAITING:
            self._leaders[sequence] = leader, shared
        elif not self._ledger.copy_prefix(sequence):
            self._leaders[sequence] = None, 0  # has its turn before a later pass

    def settle(self, running: Iterable[Sequence]) -> None:
        """Let those go on whose leader has computed their common beginning, and those whose leader is gone.

        `running` stands in the order in which sequences started.
        """
        order = list(running)
        alive = set(order)
        for follower, (leader, shared) in list(self._leaders.items()):
            if follower not in alive:
                del self._leaders[follower]
            elif leader not in alive or leader.computed >= shared:
                del self._leaders[follower]
                self.start(follower, order[: order.index(follower)])


def _scorer(sequence: Sequence, others: Iterable[Sequence]) -> Sequence | None:
    """The first of the others that scores the same prompt for the same request."""
    return next((other for other in others if other.echo is sequence.echo), None) if sequence.unscored else None


def _longest_prefix(sequence: Sequence, others: Iterable[Sequence]) -> tuple[Sequence | None, int]:
    """Which of the others knows, computed or not, most of a prompt's beginning, and how much."""
    wanted = Prefix(sequence.tokens, sequence.reusable, sequence.partition)
    best, longest = None, 0
    for other in others:
        shared = Prefix(other.tokens, len(other.tokens), other.partition).common(wanted)
        if shared > longest:
            best, longest = other, shared
    return best, longest
