"""Defers a prefill while another sequence computes the same prefix."""

from collections.abc import Iterable

from engine.core.kv.ledger import KVLedger
from engine.core.kv.prefix import Prefix
from engine.core.sequence import Sequence

WORTH_WAITING = 64
"""Tokens. Below one efficient prompt chunk, waiting costs more than it saves."""


class PrefixWaiters:
    """Sequences that wait for another one, the source, to compute the beginning of their prompt.

    A source started before its waiters. So no sequence waits for itself, and the first of all never waits.
    """

    def __init__(self, ledger: KVLedger) -> None:
        self._ledger = ledger
        self._sources: dict[Sequence, tuple[Sequence | None, int]] = {}

    def __contains__(self, sequence: Sequence) -> bool:
        """Return whether a sequence waits."""
        return sequence in self._sources

    def start(self, sequence: Sequence, earlier: Iterable[Sequence]) -> None:
        """Copy the longest computed prefix to a sequence, or defer it while another one computes a longer prefix.

        A sequence is also deferred while files are read for it, or another one computes the scores of its prompt.
        """
        if sequence.shares and self._ledger.fetch(sequence):
            self._sources[sequence] = None, 0
        else:
            self._start(sequence, earlier)

    def _start(self, sequence: Sequence, earlier: Iterable[Sequence]) -> None:
        if scorer := _scorer(sequence, earlier):
            self._sources[sequence] = scorer, sequence.prompt - 1
            return
        if not sequence.shares:
            return
        source, shared = self._worth_waiting(sequence, earlier)
        if source:
            self._sources[sequence] = source, shared
        elif not self._ledger.copy_prefix(sequence):
            self._sources[sequence] = None, 0  # the copy follows before a later step

    def _worth_waiting(self, sequence: Sequence, earlier: Iterable[Sequence]) -> tuple[Sequence | None, int]:
        """Return the sequence whose prefix is worth the wait, and the number of its tokens that can be reused."""
        if sequence.reusable - sequence.computed < WORTH_WAITING:
            return None, 0
        source, shared = self._awaited(sequence, earlier)
        if source is None or shared - sequence.computed < WORTH_WAITING:
            return None, 0
        best = self._ledger.best_source(sequence)
        saved = shared - max(sequence.computed, best.tokens if best else 0)
        if saved < WORTH_WAITING:
            return None, 0
        size = min(len(source.tokens), shared + self._ledger.traits.largest_step)  # when the wait ends
        return (source, shared) if self._ledger.traits.copy_pays(size, saved) else (None, 0)

    def _awaited(self, sequence: Sequence, earlier: Iterable[Sequence]) -> tuple[Sequence | None, int]:
        """Return the sequence with the longest common prefix, and the number of its tokens that can be reused."""
        source, shared = _longest_prefix(sequence, earlier)
        if source and self._ledger.traits.needs_checkpoints:
            shared = max((at for at in source.checkpoints if source.computed < at <= shared), default=0)
            shared = shared if self._ledger.store.has_room_for_checkpoint(shared) else 0
        return source, shared

    def resume_ready(self, running: Iterable[Sequence]) -> None:
        """Resume each waiter after its source has computed the common prefix or has ended.

        `running` is in the order in which the sequences started.
        """
        if not self._sources:
            return
        order = list(running)
        alive = set(order)
        for waiter, (source, shared) in list(self._sources.items()):
            if waiter not in alive:
                del self._sources[waiter]
            elif source not in alive or source.computed >= shared:
                del self._sources[waiter]
                self._start(waiter, order[: order.index(waiter)])


def _scorer(sequence: Sequence, others: Iterable[Sequence]) -> Sequence | None:
    """Return the first of the others that scores the same prompt for the same request."""
    return next((other for other in others if other.echo is sequence.echo), None) if sequence.unscored else None


def _longest_prefix(sequence: Sequence, others: Iterable[Sequence]) -> tuple[Sequence | None, int]:
    """Return the other sequence with the longest common prefix of known tokens, computed or not, and its length."""
    wanted = Prefix(sequence.tokens, sequence.reusable, sequence.partition)
    best, longest = None, 0
    for other in others:
        known = len(other.tokens)
        if longest < min(known, wanted.size) and other.tokens[longest] == wanted.tokens[longest]:
            shared = Prefix(other.tokens, known, other.partition).common(wanted)
            if shared > longest:
                best, longest = other, shared
    return best, longest
