"""What one pass computes: every decode row, or a fair share of the prompts that wait, in turns."""

from collections.abc import Iterable

from engine.core.budget import PromptBudget
from engine.core.sequence import Sequence
from engine.core.step import Chunk, StepPlan

SMALLEST_SHARE = 16
"""Tokens. A prompt pass serves fewer prompts rather than give each less than this."""


class Planner:
    """Decode passes and prompt passes alternate while there are both, so that neither waits for more than one other.

    A prompt's last token rides in a decode pass where one is made anyway; where nothing decodes, its own pass draws.
    """

    def __init__(self, budget: PromptBudget) -> None:
        self._budget = budget
        self._decoded_last = False
        self._cursor = 0

    def next_pass(self, running: Iterable[Sequence], *, alone: bool) -> StepPlan | None:
        """The next pass for the sequences that hold slots; None when there are none.

        `alone` says that they are of one request: then nobody else waits for the pass, and if its client leaves, the
        pass can be aborted. Otherwise every pass keeps to the target, so that decodes and cancels wait no longer.
        """
        by_slot = sorted(running, key=lambda sequence: sequence.seq_id)
        rows = [sequence for sequence in by_slot if sequence.pending == 1]
        prompts = [sequence for sequence in by_slot if sequence.pending > 1]
        if rows and not (prompts and self._decoded_last):
            self._decoded_last = True
            return StepPlan(tuple(Chunk(sequence, 1, sample=sequence.draws) for sequence in rows), decode=True)
        if prompts:
            self._decoded_last = False
            return self._prompt_pass(prompts, hurried=not alone or bool(rows), rides=1 if rows else 0)
        return None

    def _prompt_pass(self, prompts: list[Sequence], *, hurried: bool, rides: int) -> StepPlan:
        """`rides` is the number of each prompt's last tokens that are left to the next decode pass."""
        budget = self._budget.tokens(hurried=hurried)
        served = self._take_turns(prompts, max(1, budget // SMALLEST_SHARE))
        shares = share_fairly([sequence.pending - rides for sequence in served], budget)
        chunks = (
            Chunk(sequence, count, sample=sequence.draws and count == sequence.pending)
            for sequence, count in zip(served, shares, strict=True)
        )
        return StepPlan(tuple(chunks), decode=False)

    def _take_turns(self, prompts: list[Sequence], most: int) -> list[Sequence]:
        """At most `most` prompts, going round by `seq_id` from where the last pass stopped."""
        if len(prompts) <= most:
            return prompts
        ahead = [sequence for sequence in prompts if sequence.seq_id >= self._cursor]
        behind = [sequence for sequence in prompts if sequence.seq_id < self._cursor]
        served = (ahead + behind)[:most]
        self._cursor = served[-1].seq_id + 1
        return sorted(served, key=lambda sequence: sequence.seq_id)


def share_fairly(wants: list[int], budget: int) -> list[int]:
    """Equal parts of the budget; what the small wants leave over goes to the large ones (max-min fairness)."""
    shares = [0] * len(wants)
    by_want = sorted(range(len(wants)), key=wants.__getitem__)
    for served, index in enumerate(by_want):
        shares[index] = min(wants[index], budget // (len(wants) - served))
        budget -= shares[index]
    return shares
