"""Prompts that wait for a neighbour to compute what they begin with, instead of computing it again beside it."""

from collections.abc import Iterable

from engine.core.cache import KVLedger, common_prefix
from engine.core.sequence import Sequence

WORTH_WAITING = 64
"""Tokens. Below one efficient prompt chunk, waiting costs more than it saves."""


class Followers:
    """Each follows a sequence that started before it, so none waits for itself, and the first of all never waits."""

    def __init__(self, ledger: KVLedger) -> None:
        self._ledger = ledger
        self._leaders: dict[Sequence, tuple[Sequence, int]] = {}

    def __contains__(self, sequence: Sequence) -> bool:
        """Whether a sequence waits."""
        return sequence in self._leaders

    def start(self, sequence: Sequence, earlier: Iterable[Sequence]) -> None:
        """Make a sequence wait if one that started earlier is about to compute enough of its prompt."""
        if not sequence.shares:
            return
        prompt = sequence.tokens[:-1]
        known = {other: common_prefix(other.tokens, prompt) for other in earlier if other.shares}
        leader = max(known, key=known.__getitem__, default=None)
        if leader and known[leader] >= sequence.computed + WORTH_WAITING and known[leader] > leader.computed:
            self._leaders[sequence] = leader, known[leader]

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
                self._ledger.borrow(follower)
                self.start(follower, order[: order.index(follower)])
