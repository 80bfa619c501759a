"""Which sequences run, and what the next pass computes. Pure: no clock, no I/O, no C; its caller guards it by a lock.

There are no phases (after vLLM's V1 scheduler): a sequence has tokens known and tokens computed, and a pass lets the
second catch up with the first.
"""

from collections.abc import Iterable

from engine.core.budget import PromptBudget
from engine.core.counters import Counters
from engine.core.group import SequenceGroup
from engine.core.kv.ledger import KVLedger, Slot
from engine.core.kv.prefix_waiters import PrefixWaiters
from engine.core.lane import News, Outbox, PassMembers, Work
from engine.core.planner import Planner, divide
from engine.core.queue import Queue
from engine.core.sequence import Sequence, State
from engine.core.speculation import Speculator
from engine.core.step import Chunk, Close, Draw, DrawFailure, Outcome, StepPlan, StepResult
from engine.core.turns import Demand, Turn
from engine.events import EngineMetrics, Failed, Finished, Released, SlotInfo, Started, Text


class Scheduler:
    """Owns every generation from its acceptance to its end. See `engine.core.lane.LaneScheduler`."""

    def __init__(self, ledger: KVLedger, *, step_target: float, queue_limit: int, speculation: bool = True) -> None:
        """Own every slot of a ledger.

        Args:
            ledger: all of whose slots are free.
            step_target: seconds that one prompt pass may take beside decoding neighbours.
            queue_limit: requests that may wait for their first slot.
            speculation: whether passes compute guesses at tokens that nobody asked for, where that is faster.
        """
        self._ledger = ledger
        self._budget = PromptBudget(step_target, ledger.traits.min_prefill_chunk)
        self._speculator = Speculator(can_trim=ledger.traits.can_trim, by_default=speculation)
        self._planner = Planner(self._budget, ledger, self._speculator)
        self._prefix_waiters = PrefixWaiters(ledger)
        self._queue = Queue(queue_limit)
        self._groups: dict[int, SequenceGroup] = {}
        self._running: dict[Sequence, SequenceGroup] = {}
        self._rows: list[Sequence] = []
        self._prompts: list[Sequence] = []
        self._crowded = False
        self._outbox = Outbox()
        self.in_pass: PassMembers[Sequence] = PassMembers()
        self._counters = Counters()

    @property
    def busy(self) -> bool:
        """Whether there is work."""
        return bool(self._groups or self._outbox or self._ledger.unclean)

    def __contains__(self, key: int) -> bool:
        """Return whether it owns a request."""
        return key in self._groups

    def check_room(self) -> None:
        """Raise `Busy` when the queue is full: requests that free slots wait for do not count."""
        self._queue.check_room(self._ledger.free)

    def add(self, group: SequenceGroup) -> None:
        """Queue a request, for which there is room."""
        self._groups[group.key] = group
        self._queue.add(group)

    def cancel(self, key: int) -> Released | None:
        """End a request; no later pass carries its rows.

        Returns `Released` when it never held anything; else None, and `Released` comes with the next `Work`, which
        drops its cells before its pass.
        """
        group = self._groups[key]
        phase = group.phase
        freed = self._drop(group)
        released = Released(phase, group.generated, freed)
        if not group.started:
            return released
        self._outbox.news.append((key, released))
        return None

    def fail_all(self, message: str) -> None:
        """End every request, because the pass under way could not be made."""
        self.in_pass.end()
        for group in list(self._groups.values()):
            self._fail(group, message)

    def demand(self) -> Demand:
        """Start what there is room for; return whether there are decode rows, and prompts for passes of their own."""
        self._prefix_waiters.resume_ready(self._running)
        self._admit()
        ready = [sequence for sequence in self._running if sequence not in self._prefix_waiters]
        self._rows, self._prompts = divide(ready)
        return Demand(urgent=bool(self._rows), bulk=bool(self._prompts))

    def plan(self, turn: Turn | None, *, contended: bool) -> Work[StepPlan]:
        """Return what to do next: with a pass of decode rows, of prompts, or none. Follows `demand`."""
        plan = None if turn is None else self._next_pass(turn, contended=contended)
        outbox, self._outbox = self._outbox, Outbox()
        return Work((*self._ledger.take_changes(), *outbox.changes), outbox.news, plan)

    def apply(self, plan: StepPlan, result: StepResult) -> News:
        """Take a pass's result; return the news."""
        self.in_pass.end()
        self._counters.count(plan, result)
        match result.outcome:
            case Outcome.NO_ROOM:
                self._make_room()
            case Outcome.DONE:
                self._learn_speed(plan, result)
                return self._advance(plan, result)
        return []

    def lose(self, keys: Iterable[int]) -> None:
        """Take note of saved prefixes for which there was no memory. Belongs before the next `plan`."""
        for key in keys:
            self._ledger.store.drop_unsaved(key)

    def metrics(self) -> EngineMetrics:
        """Return the state and the counters of this moment."""
        counters, ledger = self._counters, self._ledger
        return EngineMetrics(
            slots=ledger.free + ledger.held,
            free=ledger.free,
            held=ledger.held,
            waiting=len(self._queue),
            active_tokens=ledger.active_tokens,
            cached_tokens=ledger.cached_tokens,
            stored_tokens=ledger.store.tokens,
            saved_tokens=ledger.store.saved,
            restored_tokens=ledger.store.restored,
            steps=counters.steps,
            step_seconds=counters.step_seconds,
            rows_decoded=counters.rows_decoded,
            prompt_tokens=counters.prompt_tokens,
            aborted=counters.aborted,
            drafted=counters.drafted,
            accepted=counters.accepted,
        )

    def inspect(self) -> tuple[SlotInfo, ...]:
        """Return every slot at this moment."""
        return tuple(_describe(slot) for slot in self._ledger.slots)

    def _next_pass(self, turn: Turn, *, contended: bool) -> StepPlan:
        if turn is Turn.URGENT:
            plan = self._planner.decode_pass(self._rows)
        else:
            shared = contended or bool(self._rows) or len(set(self._running.values())) > 1
            plan = self._planner.prompt_pass(self._prompts, hurried=shared, rides=1 if self._rows else 0)
        self.in_pass.begin({chunk.sequence for chunk in plan.chunks})
        return plan

    def _admit(self) -> None:
        if self._crowded and self._running:
            return
        while self._ledger.free and self._ledger.may_copy and (turn := self._queue.start_next()):
            group, sequence = turn
            self._ledger.lease(sequence)
            self._prefix_waiters.start(sequence, self._running)
            self._running[sequence] = group
            if not group.started:
                group.started = True
                self._outbox.news.append((group.key, Started()))

    def _advance(self, plan: StepPlan, result: StepResult) -> News:
        news: News = []
        draws, scores = iter(result.draws), iter(result.scores)
        for chunk in plan.chunks:
            drawn = next(draws) if chunk.sample else ()
            sequence = chunk.sequence
            if chunk.score and sequence.echo:
                sequence.echo.record(chunk.start, next(scores))
            if sequence.state is not State.RUNNING:  # cancelled while the pass ran
                continue
            sequence.advance(chunk.count, result.seconds)
            if chunk.sample:
                self._accept_all(chunk, drawn, news)
            elif sequence.pending == 0:
                self._finish(sequence, sequence.complete(), news)
        return news

    def _accept_all(self, chunk: Chunk, drawn: tuple[Draw, ...], news: News) -> None:
        """Take the tokens drawn, up to one that ends the sequence; the cells behind them are of wrong guesses."""
        sequence = chunk.sequence
        sequence.count_draft(len(chunk.draft), len(drawn) - 1)
        for guessed_right, draw in enumerate(drawn):
            if guessed_right:
                sequence.advance(1, 0.0)
            self._accept(sequence, draw, news)
            if sequence.state is not State.RUNNING:
                break
        if sequence.computed < chunk.start + chunk.count + len(chunk.draft):
            self._ledger.trim(chunk.seq_id, sequence.computed)

    def _accept(self, sequence: Sequence, draw: Draw, news: News) -> None:
        group = self._running[sequence]
        if isinstance(draw, DrawFailure):
            self._fail(group, draw.message)
            return
        group.generated += 1
        match sequence.accept(draw):
            case Text() as text:
                news.append((group.key, text))
            case Finished() as finished:
                self._finish(sequence, finished, news)

    def _finish(self, sequence: Sequence, finished: Finished, news: News) -> None:
        group = self._running[sequence]
        news.append((group.key, finished))
        group.end(sequence)
        self._leave(sequence, keep=sequence.shares)
        self._outbox.changes.append(Close(sequence))
        if group.over:
            del self._groups[group.key]
        elif not group.running:
            self._queue.resume(group)

    def _make_room(self) -> None:
        """Give up cached cells; if there are none, put the youngest sequence back until another has ended.

        Alone, it can never fit.
        """
        if self._ledger.evict() or not self._running:
            return
        sequence, group = max(self._running.items(), key=lambda item: (item[1].key, item[0].choice))
        if len(self._running) == 1:
            self._fail(group, "the KV cache has no room for this request, even alone")
            return
        self._leave(sequence, keep=False)
        group.put_back(sequence)
        self._queue.put_back(group)
        self._crowded = True

    def _fail(self, group: SequenceGroup, message: str) -> None:
        self._drop(group)
        self._outbox.news.append((group.key, Failed(message, "engine_failed")))

    def _drop(self, group: SequenceGroup) -> int:
        """Take a request out of everything; gives the number of cells it held."""
        del self._groups[group.key]
        self._queue.discard(group)
        ended = [*group.running, *group.waiting]
        freed = sum(self._leave(sequence, keep=False) for sequence in group.running)
        group.end_all()
        self._outbox.changes.extend(map(Close, ended))
        return freed

    def _leave(self, sequence: Sequence, *, keep: bool) -> int:
        """Take a sequence's slot; gives the number of cells it held."""
        del self._running[sequence]
        self.in_pass.leave(sequence)
        self._crowded = False
        return self._ledger.release(sequence, keep=keep)

    def _learn_speed(self, plan: StepPlan, result: StepResult) -> None:
        """A prompt pass that scores is left out: it tells of the logits, not of the tokens."""
        if plan.decode:
            self._speculator.observe(plan.tokens, result.seconds)
        elif not result.scores:
            self._budget.observe(plan.tokens, result.seconds, depth=plan.depth)


def _describe(slot: Slot) -> SlotInfo:
    """A slot whose sequence was cancelled is the sequence's until its cells are dropped."""
    holder = slot.holder or slot.leaving
    if holder is None:
        return SlotInfo(slot.seq_id, "idle", None, 0, len(slot.cached))
    return SlotInfo(slot.seq_id, "decode" if holder.generated else "prefill", holder.request.id, holder.computed, 0)
