"""Plans of single steps: a decode step with every decode row, or a prompt step with a fair share of each prompt."""

from collections.abc import Iterable, Iterator
from operator import attrgetter

from engine.core.budget import PromptBudget
from engine.core.drafts.speculation import Speculator
from engine.core.kv.compactor import Compactor
from engine.core.kv.ledger import KVLedger
from engine.core.model import ModelTraits
from engine.core.sequence import Sequence, State
from engine.core.step import SCORED_AT_ONCE, Chunk, StepPlan

SMALLEST_SHARE = 16
"""Tokens. The smallest share of a prompt where its model computes so few efficiently, and the room that a shorter
prompt takes in a step."""
_ATTENTION = 4
"""Tokens before a chunk, for each of its own, with which its attention begins to matter."""
_LAST_CHUNK = 5 / 4
"""Tokens of a prompt's last chunk, relative to its share: a short rest takes longer in a step of its own."""
REMAINDER = 3
"""Tokens. So few remaining prompt tokens are computed in decode steps, one in each. A chunk of their own would need
another weight pass, which only chunks of equal length in neighbouring slots share."""

_by_slot = attrgetter("seq_id")


class Planner:
    """Plans decode steps and prompt steps. Sequences may change their slots for a step.

    The last token of a prompt is computed in a decode step if other sequences decode; otherwise in its prompt step,
    which then draws a token.
    """

    def __init__(self, budget: PromptBudget, ledger: KVLedger, speculator: Speculator) -> None:
        self._budget = budget
        self._ledger = ledger
        self._traits = ledger.traits
        self._row_compactor = Compactor(ledger)
        self._prompt_compactor = Compactor(ledger)
        self._speculator = speculator
        self._rounds = _Rounds()

    def decode_step(self, rows: list[Sequence], *, alone: bool) -> StepPlan:
        """Return a step that computes one token of each row, and draft tokens after it.

        A full slot discards tokens first: after the moves, which it may still be a part of.

        Args:
            rows: the sequences.
            alone: whether no other sequence runs than the only row.
        """
        self._row_compactor.gather(rows)
        rows.sort(key=_by_slot)
        for row in rows:
            if row.full:
                self._ledger.shift(row)
        drafts = self._speculator.draft(rows, alone=alone)
        chunks = (
            Chunk(row, 1, sample=row.draws and row.pending == 1, draft=draft)
            for row, draft in zip(rows, drafts, strict=True)
        )
        return StepPlan(tuple(chunks), decode=True, adapters=rows[0].adapters)

    def prompt_step(self, prompts: list[Sequence], *, hurried: bool, rides: int, turns: int = 1) -> StepPlan:
        """Return a step that computes a share of each prompt.

        Args:
            prompts: sequences in ascending order of their slots.
            hurried: whether others wait for the step. If so, it keeps to the target time, so that decodes and cancels
                wait no longer. If not, all prompts belong to one request, and a cancel can abort the step.
            rides: number of last tokens of each prompt that are left to the next decode step.
            turns: number of turns of other sets of adapters for which a set waits.
        """
        depth = sum(sequence.computed for sequence in prompts) // len(prompts)
        budget = self._budget.tokens(hurried=hurried, depth=depth, steps=turns)
        share = self._share(budget, depth)
        served = self._rounds.take(prompts, budget, share)
        shares = divide_budget(list(_wants(served, rides)), budget, share, self._traits)
        if rides and not any(map(_scores, served)):
            shares = cut_to_levels(shares)
        if len(set(shares)) == 1:  # equal chunks in neighbouring slots share a weight pass
            self._prompt_compactor.gather(served)
            served.sort(key=_by_slot)
        chunks = (
            Chunk(sequence, count, sample=sequence.draws and count == sequence.pending, score=_scores(sequence))
            for sequence, count in zip(served, shares, strict=True)
        )
        return StepPlan(tuple(chunks), decode=False, adapters=served[0].adapters)

    def _share(self, budget: int, depth: int) -> int:
        """Return the least tokens of a prompt for one step. Without much attention before them, few cost no more."""
        return min(budget, max(SMALLEST_SHARE, min(self._traits.min_prefill_chunk, depth // _ATTENTION)))


class _Rounds:
    """Rounds in which each waiting prompt gets one share, in steps with about equally many prompts.

    No prompt gets a second share before all prompts that waited at the beginning of the round have had one. A round
    serves them in the order of their slots, so that the prompts of one step are neighbours. Each set of adapters has
    rounds of its own.
    """

    def __init__(self) -> None:
        self._due: set[Sequence] = set()

    def take(self, prompts: list[Sequence], budget: int, share: int) -> list[Sequence]:
        """Return the prompts of the next step, in ascending order of `seq_id`.

        Args:
            prompts: all waiting prompts of a set of adapters, in ascending order of `seq_id`.
            budget: tokens of the step.
            share: tokens of each prompt that are computed together. The number of prompts with scores is limited.
        """
        due = [sequence for sequence in prompts if sequence in self._due] or prompts
        rooms = [_room(sequence, share) for sequence in due]
        steps = -(-sum(rooms) // budget)
        most = int(budget * _LAST_CHUNK)
        served = list(_few_that_score(due[: _fitting(rooms, -(-sum(rooms) // steps), most)]))
        others = {sequence for sequence in self._due.difference(prompts) if sequence.state is State.RUNNING}
        self._due = others.union(due).difference(served)
        return served


def _room(sequence: Sequence, share: int) -> int:
    """Return the tokens that a prompt takes of the budget of a step."""
    return SMALLEST_SHARE if sequence.pending <= SMALLEST_SHARE + REMAINDER else min(sequence.pending, share)


def _fitting(rooms: list[int], enough: int, most: int) -> int:
    """Return how many of the first prompts take enough tokens, but not more than the most; at least one."""
    taken = 0
    for count, room in enumerate(rooms):
        if taken >= enough or (taken and taken + room > most):
            return count
        taken += room
    return len(rooms)


def _few_that_score(prompts: Iterable[Sequence]) -> Iterator[Sequence]:
    """Yield the prompts, except those with scores for which a step has no room."""
    room = SCORED_AT_ONCE // SMALLEST_SHARE
    for sequence in prompts:
        if not _scores(sequence):
            yield sequence
        elif room:
            room -= 1
            yield sequence


def divide(running: Iterable[Sequence]) -> tuple[list[Sequence], list[Sequence]]:
    """Return the rows of a decode step, and the prompts that need a prompt step, in ascending order of slots."""
    by_slot = sorted(running, key=_by_slot)
    pending = [sequence.pending for sequence in by_slot]
    if max(pending, default=0) <= 1:
        return by_slot, []
    if min(pending) > 1:
        return [], by_slot
    rows: list[Sequence] = []
    prompts: list[Sequence] = []
    for sequence, tokens in zip(by_slot, pending, strict=True):
        rides = tokens <= 1 + (0 if sequence.unscored else REMAINDER)
        (rows if rides else prompts).append(sequence)
    return rows, prompts


def _scores(sequence: Sequence) -> bool:
    """Return whether the next rows of a sequence give scores."""
    return sequence.unscored > 0 and sequence.computed == sequence.reusable


def _wants(prompts: list[Sequence], rides: int) -> Iterator[int]:
    """Yield the maximum number of tokens of each prompt that one step can compute.

    A chunk ends at a checkpoint. It has either rows with scores or rows without, except for the last row of the prompt.
    The number of rows with scores is limited.
    """
    scored = iter(share_fairly([sequence.unscored for sequence in prompts if _scores(sequence)], SCORED_AT_ONCE))
    for sequence in prompts:
        most = min(sequence.tokens_to_checkpoint(), sequence.pending - rides)
        if not sequence.unscored:
            yield most
        elif not _scores(sequence):
            yield min(most, sequence.reusable - sequence.computed)
        else:
            share = next(scored)
            yield min(most, share) if share < sequence.unscored else most


def share_fairly(wants: list[int], budget: int) -> list[int]:
    """Divide the budget equally; tokens that small wants leave go to the large ones (max-min fairness).

    The large ones get exactly the same number, because equal chunks share a weight pass.
    """
    shares = wants.copy()
    by_want = sorted(range(len(wants)), key=wants.__getitem__)
    for served, index in enumerate(by_want):
        equal_share = budget // (len(wants) - served)
        if wants[index] > equal_share:
            for larger in by_want[served:]:
                shares[larger] = equal_share
            break
        budget -= wants[index]
    return shares


def divide_budget(wants: list[int], budget: int, least: int, traits: ModelTraits) -> list[int]:
    """Divide the budget equally, so that each chunk is efficient. It may be exceeded by half.

    Args:
        wants: the maximum number of tokens of each prompt.
        budget: tokens of the step.
        least: tokens of a chunk, if the prompt has so many.
        traits: the largest step, and the tile. After the first chunk of a prompt, longer ones are multiples of it.
    """
    shares = (max(share, least) for share in share_fairly(wants, budget))
    chunks = [_chunk(want, share, traits.prefill_tile) for want, share in zip(wants, shares, strict=True)]
    return chunks if sum(chunks) <= traits.largest_step else share_fairly(wants, traits.largest_step)


def _chunk(want: int, share: int, tile: int) -> int:
    """Return the tokens of a chunk. The odd part of a prompt comes first, where its attention costs least."""
    if want <= share * _LAST_CHUNK:
        return want
    if share < tile:
        return share
    odd = want % tile
    return share - share % tile + odd - (tile if odd > tile * (_LAST_CHUNK - 1) else 0)


def cut_to_levels(shares: list[int]) -> list[int]:
    """Reduce shares that are about equal to the smallest of them. The rest is computed in decode steps."""
    levels: dict[int, int] = {}
    level = -REMAINDER - 1
    for share in sorted(shares):
        if share - level > REMAINDER:
            level = share
        levels[share] = level
    return [levels[share] for share in shares]
