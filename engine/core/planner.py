"""Plans of single steps: a decode step with every decode row, or a prompt step with a part of the prompts."""

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import TypeAlias

from engine.core.budget import PromptBudget
from engine.core.drafts.speculation import DraftTokens, Speculator
from engine.core.kv.compactor import Compactor
from engine.core.kv.ledger import KVLedger
from engine.core.sequence import Sequence
from engine.core.step import SCORED_AT_ONCE, Chunk, StepPlan, StepResult

_LAST_CHUNK = 5 / 4
"""Tokens of a step that completes its prompts, relative to the budget: a short rest takes longer in a step of its
own."""
_WEIGHT_PASS = 16
"""Tokens. The least room that each further prompt takes of a step: chunks of unlike length need a weight pass each."""

Part: TypeAlias = tuple[Sequence, int]
"""A prompt, and a number of its next tokens."""

_by_slot = attrgetter("seq_id")
_by_rest = attrgetter("pending")


class Planner:
    """Plans decode steps and prompt steps, by the measured times of those before. Sequences may change their slots.

    The step that completes a prompt draws its first token, so that it does not wait for the next decode step.
    """

    def __init__(self, ledger: KVLedger, step_target: float) -> None:
        """Start without measurements. `step_target` is as for the scheduler."""
        self._ledger = ledger
        self._traits = traits = ledger.traits
        self._budget = PromptBudget(
            step_target, traits.min_prefill_chunk, tile=traits.prefill_tile, largest=traits.largest_step
        )
        self._speculator = Speculator(traits)
        self._row_compactor = Compactor(ledger, bridges=True)
        self._prompt_compactor = Compactor(ledger)

    def decode_step(self, rows: list[Sequence], *, running: int) -> StepPlan:
        """Return a step that computes one token of each row, and draft tokens after it.

        A full slot discards tokens first: after the moves, which it may still be a part of.

        Args:
            rows: the sequences.
            running: number of all sequences that run.
        """
        rows.sort(key=_by_slot)
        self._row_compactor.gather(rows)
        rows.sort(key=_by_slot)
        for row in rows:
            if row.full:
                self._ledger.shift(row)
        return _decode_plan(rows, self._speculator.draft(rows, running))

    def step_after(self, plan: StepPlan) -> StepPlan | None:
        """Return the decode step after one that runs, if it is sure to have the same rows, one token further.

        It has no draft tokens. None if the rows are no neighbours: what their gaps cost is counted for each step.
        """
        chunks = plan.chunks
        if chunks[-1].seq_id - chunks[0].seq_id >= len(chunks):
            return None
        return StepPlan(tuple([chunk.one_further() for chunk in chunks]), decode=True, adapters=plan.adapters)

    def with_drafts(self, plan: StepPlan, rows: list[Sequence]) -> StepPlan:
        """Return a decode step of these rows with draft tokens, or itself if there are none. No other sequence runs."""
        drafts = self._speculator.draft(rows, len(rows))
        return _decode_plan(rows, drafts) if any(drafts) else plan

    def prompt_step(self, prompts: list[Sequence], *, hurried: bool, turns: int = 1) -> StepPlan:
        """Return a step that completes some prompts, or computes a part of one.

        Args:
            prompts: sequences in the order in which they have begun.
            hurried: whether others wait for the step. If so, it keeps to the target time, so that decodes and cancels
                wait no longer. If not, all prompts belong to one request, and a cancel can abort the step.
            turns: number of turns of other sets of adapters for which a set waits.
        """
        waiting = by_turns(prompts)

        def first(depth: int) -> list[Part]:
            budget = self._budget.tokens(hurried=hurried, depth=depth, steps=turns)
            most = min(int(budget * _LAST_CHUNK), self._traits.largest_step)
            shared = self._budget.shared_tokens(depth) if hurried else most
            return first_parts(parts(waiting), budget, most, self._traits.prefill_tile, shared)

        taken = first(waiting[0].computed)
        if (deepest := max(sequence.computed for sequence, _ in taken)) > waiting[0].computed:
            taken = first(deepest)  # where a token costs more, so that fewer fit
        taken.sort(key=lambda part: part[0].seq_id)
        served, sizes = [sequence for sequence, _ in taken], [tokens for _, tokens in taken]
        if len(set(sizes)) == 1:  # equal chunks in neighbouring slots share a weight pass
            self._prompt_compactor.gather(served)
            served.sort(key=_by_slot)
        chunks = (
            Chunk(sequence, count, sample=sequence.draws and count == sequence.pending, score=_scores(sequence))
            for sequence, count in zip(served, sizes, strict=True)
        )
        return StepPlan(tuple(chunks), decode=False, adapters=served[0].adapters)

    def observe(self, plan: StepPlan, result: StepResult) -> None:
        """Record the duration of a step. A prompt step with scores is left out: its logits dominate its duration."""
        if plan.decode:
            self._budget.observe_decode(result.seconds)
            if self._traits.max_draft:
                drawn = sum(map(len, result.draws))
                accepted = drawn - len(result.draws)
                self._speculator.observe(plan.tokens, result.seconds, drawn=drawn, accepted=accepted)
        elif not result.scores:
            self._budget.observe(plan.tokens, result.seconds, depth=plan.depth)
            if self._ledger.disk:
                self._ledger.disk.observe_prompt(plan.tokens, result.seconds)


def _decode_plan(rows: list[Sequence], drafts: Iterable[DraftTokens]) -> StepPlan:
    """Return the decode step of these rows."""
    chunks = [Chunk(row, 1, sample=row.draws, draft=draft) for row, draft in zip(rows, drafts, strict=True)]
    return StepPlan(tuple(chunks), decode=True, adapters=rows[0].adapters)


def by_turns(prompts: list[Sequence]) -> list[Sequence]:
    """Return prompts in the order in which they are computed: by turns the oldest, and the one with the shortest rest.

    So a short prompt does not wait for long ones, and the prompts of a burst end one after another, not all late. A
    long prompt comes first in each second step at least, once it is the oldest.

    Args:
        prompts: all waiting prompts of a set of adapters, in the order in which they have begun.
    """
    oldest, shortest = prompts[0], sorted(prompts, key=_by_rest)
    orders = (prompts, shortest) if oldest.overtaken else (shortest, prompts)
    oldest.overtaken = orders[0][0] is not oldest
    return list(dict.fromkeys(chain.from_iterable(zip(*orders, strict=True))))


def parts(prompts: Iterable[Sequence]) -> Iterator[Part]:
    """Yield the largest part of each prompt that one step can compute. Prompts whose scores have no room are left out.

    A part ends at a checkpoint. It has either rows with scores or rows without, except for the last row of the prompt.
    The number of rows with scores is limited.

    Args:
        prompts: the prompts in their order.
    """
    room = SCORED_AT_ONCE
    for sequence in prompts:
        most = min(sequence.tokens_to_checkpoint(), sequence.pending)
        if not sequence.unscored:
            yield sequence, most
        elif not _scores(sequence):
            yield sequence, min(most, sequence.reusable - sequence.computed)
        elif room:
            yield sequence, most if sequence.unscored <= room else min(most, room)
            room -= min(sequence.unscored, room)


def first_parts(waiting: Iterable[Part], budget: int, most: int, tile: int, shared: int) -> list[Part]:
    """Return what a step computes: as many whole parts as it has room for, or a chunk of the first one.

    Args:
        waiting: parts in their order.
        budget: tokens of the step.
        most: tokens that it may have if it leaves no short rest, which would take longer in a step of its own.
        tile: as `ModelTraits.prefill_tile`.
        shared: tokens that it may have with more than one part.
    """
    taken, total = list[Part](), 0
    for sequence, tokens in waiting:
        room = max(tokens, _WEIGHT_PASS) if taken else tokens
        if taken and total + room > min(most, shared):
            continue
        taken.append((sequence, tokens if room <= most else chunk_of(tokens, budget, most, tile)))
        total += room
        if total >= min(budget, shared):
            break
    return taken


def chunk_of(tokens: int, budget: int, most: int, tile: int) -> int:
    """Return the tokens of the next chunk of a part that is longer than `most`. The arguments are as in `first_parts`.

    The odd part comes first, where its attention costs least, so that all later chunks are whole tiles.
    """
    if budget < tile:
        return budget
    odd = tokens % tile
    chunk = budget - budget % tile + odd
    return chunk if odd <= tile * (_LAST_CHUNK - 1) and chunk <= most else chunk - tile


def _scores(sequence: Sequence) -> bool:
    """Return whether the next rows of a sequence give scores."""
    return sequence.unscored > 0 and sequence.computed == sequence.reusable


def divide(running: list[Sequence]) -> tuple[list[Sequence], list[Sequence]]:
    """Return the rows of a decode step, and the prompts that need a prompt step, in the given order."""
    rows = [sequence for sequence in running if sequence.pending == 1]
    if len(rows) == len(running):
        return rows, []
    return rows, [sequence for sequence in running if sequence.pending > 1]
