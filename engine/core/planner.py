"""What one pass computes: every decode row, or a fair share of the prompts that wait."""

from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter

from engine.core.budget import PromptBudget
from engine.core.kv.compactor import Compactor
from engine.core.kv.ledger import KVLedger
from engine.core.sequence import Sequence
from engine.core.speculation import Speculator
from engine.core.step import SCORED_AT_ONCE, Chunk, StepPlan

SMALLEST_SHARE = 16
"""Tokens. A prompt pass serves fewer prompts rather than give each less than this."""
REMAINDER = 3
"""Tokens. So few of a prompt ride in decode passes, one in each, rather than make a walk over the weights of their own:
equally long chunks of neighbours share one."""

_by_slot = attrgetter("seq_id")


class Planner:
    """Makes decode passes and prompt passes. Sequences may change their slots for a pass.

    A prompt's last token rides in a decode pass where one is made anyway; where nothing decodes, its own pass draws.
    """

    def __init__(self, budget: PromptBudget, ledger: KVLedger, speculator: Speculator) -> None:
        self._budget = budget
        self._row_compactor = Compactor(ledger)
        self._prompt_compactor = Compactor(ledger)
        self._speculator = speculator
        self._rounds = _Rounds()

    def decode_pass(self, rows: list[Sequence]) -> StepPlan:
        """Compute a token of each row, and guesses behind it."""
        self._row_compactor.gather(rows)
        rows.sort(key=_by_slot)
        drafts = self._speculator.draft(rows)
        chunks = (
            Chunk(row, 1, sample=row.draws and row.pending == 1, draft=draft)
            for row, draft in zip(rows, drafts, strict=True)
        )
        return StepPlan(tuple(chunks), decode=True)

    def prompt_pass(self, prompts: list[Sequence], *, hurried: bool, rides: int) -> StepPlan:
        """Compute a share of each prompt.

        Args:
            prompts: in ascending order of their slots.
            hurried: whether others wait for the pass: it keeps to the target, so that decodes and cancels wait no
                longer. Otherwise all prompts are of one request, and if its client leaves, the pass can be aborted.
            rides: the number of each prompt's last tokens that are left to the next decode pass.
        """
        depth = sum(sequence.computed for sequence in prompts) // len(prompts)
        budget = self._budget.tokens(hurried=hurried, depth=depth)
        served = self._rounds.take(prompts, max(1, budget // SMALLEST_SHARE))
        shares = share_fairly(list(_wants(served, rides)), budget)
        if rides and not any(map(_scores, served)):
            shares = cut_to_levels(shares)
        if len(set(shares)) == 1:  # equal chunks of neighbours share a walk over the weights
            self._prompt_compactor.gather(served)
            served.sort(key=_by_slot)
        chunks = (
            Chunk(sequence, count, sample=sequence.draws and count == sequence.pending, score=_scores(sequence))
            for sequence, count in zip(served, shares, strict=True)
        )
        return StepPlan(tuple(chunks), decode=False)


class _Rounds:
    """Rounds of about equally many: nobody has a second share before all who waited when the round began have had one.

    In a round they are served by their slots, so that those of one pass are neighbours.
    """

    def __init__(self) -> None:
        self._due: set[Sequence] = set()

    def take(self, prompts: list[Sequence], most: int) -> list[Sequence]:
        """At most `most` of the prompts, and few that score. They stand in ascending order of `seq_id`, as do those it
        gives."""
        due = [sequence for sequence in prompts if sequence in self._due] or prompts
        passes = -(-len(due) // most)
        served = list(islice(_few_that_score(due), -(-len(due) // passes)))
        self._due = set(due).difference(served)
        return served


def _few_that_score(prompts: Iterable[Sequence]) -> Iterator[Sequence]:
    """Without those for whose scores a pass has no room."""
    room = SCORED_AT_ONCE // SMALLEST_SHARE
    for sequence in prompts:
        if not _scores(sequence):
            yield sequence
        elif room:
            room -= 1
            yield sequence


def divide(running: Iterable[Sequence]) -> tuple[list[Sequence], list[Sequence]]:
    """Return the rows of a decode pass, and the prompts that need one of their own, in ascending order of slots."""
    by_slot = sorted(running, key=_by_slot)
    if all(sequence.pending > 1 for sequence in by_slot):
        return [], by_slot
    rows: list[Sequence] = []
    prompts: list[Sequence] = []
    for sequence in by_slot:
        rides = sequence.pending <= 1 + (0 if sequence.unscored else REMAINDER)
        (rows if rides else prompts).append(sequence)
    return rows, prompts


def _scores(sequence: Sequence) -> bool:
    """Whether the next rows of a sequence are ones that score."""
    return sequence.unscored > 0 and sequence.computed == sequence.reusable


def _wants(prompts: list[Sequence], rides: int) -> Iterator[int]:
    """How much of each prompt a pass could compute at most.

    Rows that score and rows that do not share no chunk, save the prompt's last; and there are few that score.
    """
    scored = iter(share_fairly([sequence.unscored for sequence in prompts if _scores(sequence)], SCORED_AT_ONCE))
    for sequence in prompts:
        if not sequence.unscored:
            yield sequence.pending - rides
        elif not _scores(sequence):
            yield sequence.reusable - sequence.computed
        else:
            share = next(scored)
            yield share if share < sequence.unscored else sequence.pending - rides


def share_fairly(wants: list[int], budget: int) -> list[int]:
    """Equal parts of the budget; what the small wants leave over goes to the large ones (max-min fairness).

    The large ones get equally much to the token, because equal chunks share a walk over the weights.
    """
    shares = wants.copy()
    by_want = sorted(range(len(wants)), key=wants.__getitem__)
    for served, index in enumerate(by_want):
        part = budget // (len(wants) - served)
        if wants[index] > part:
            for larger in by_want[served:]:
                shares[larger] = part
            break
        budget -= wants[index]
    return shares


def cut_to_levels(shares: list[int]) -> list[int]:
    """Cut shares that are about equal to the smallest of them; what that leaves of a prompt rides."""
    levels: dict[int, int] = {}
    level = -REMAINDER - 1
    for share in sorted(shares):
        if share - level > REMAINDER:
            level = share
        levels[share] = level
    return [levels[share] for share in shares]
