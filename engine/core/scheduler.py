"""The scheduler of generations: plans each step, and turns its result into tokens, texts and ends.

Pure: it uses no clock, no I/O and no C. Its caller guards it by a lock. There are no phases (as in vLLM's V1
scheduler): a sequence has known tokens and computed tokens, and each step computes some of the difference.
"""

from collections.abc import Iterable, Iterator

from engine.core.counters import Counters
from engine.core.fair.adapter_turns import AdapterTurns
from engine.core.group import TOO_MANY_DETAILS, SequenceGroup
from engine.core.kv.held import held_prefixes
from engine.core.kv.ledger import KVLedger
from engine.core.lane import News, Outbox, StepMembers, Work
from engine.core.lead import StepLead
from engine.core.output.choice import End
from engine.core.planner import Planner, divide
from engine.core.queue import Queue
from engine.core.running import RunningSequences
from engine.core.sequence import Sequence, State
from engine.core.step import Chunk, Close, Draw, DrawFailure, Outcome, StepPlan, StepResult
from engine.core.turns import Demand, Turn
from engine.events import Failed, FirstToken, Released, Started, Text
from engine.info import EngineMetrics, HeldPrefix, SlotInfo


class Scheduler:
    """Owns every generation from its admission to its end. Implements `engine.core.lane.LaneScheduler`."""

    def __init__(self, ledger: KVLedger, *, step_target: float, queue_limit: int) -> None:
        """Take over every slot of a ledger.

        Args:
            ledger: the slots, which are all free.
            step_target: target duration, in seconds, of a prompt step while other sequences decode.
            queue_limit: maximum number of requests that wait for their first slot.
        """
        self.ledger = ledger
        """The slots."""
        self._planner = Planner(ledger, step_target)
        self._adapter_turns = AdapterTurns(step_target)
        self._counters = Counters()
        self._queue = Queue(queue_limit)
        self._running = RunningSequences(ledger, self._queue, self._counters)
        self._groups: dict[int, SequenceGroup] = {}
        self._rows: list[Sequence] = []
        self._prompts: list[Sequence] = []
        self._reads: int | None = None
        self._outbox = Outbox()
        self._lead = StepLead(self._planner, ledger, self._running)
        self.in_step: StepMembers[Sequence] = StepMembers()

    @property
    def busy(self) -> bool:
        """True if there is work."""
        waits = self._reads == self.ledger.store.reads  # for files, since the last demand
        return bool((self._groups and not waits) or self._outbox or self.ledger.unclean)

    def __contains__(self, key: int) -> bool:
        """Return whether the scheduler owns a request."""
        return key in self._groups

    def check_room(self, client: str) -> None:
        """Check that one more request of a client may wait. Requests that will take the free slots do not count.

        Raises:
            Busy: the queue is full, or its rest is kept for other clients.
        """
        self._queue.check_room(client, free=self.ledger.free)

    def add(self, group: SequenceGroup) -> None:
        """Append a request to the queue. `check_room` comes first."""
        self._groups[group.key] = group
        self._queue.add(group)
        self._reads = None

    def cancel(self, key: int) -> Released | None:
        """End a request. No later step computes its rows.

        Returns:
            `Released` if the request never held a slot. Otherwise None, and `Released` comes with the next `Work`,
            which drops the cells before its step.
        """
        group = self._groups[key]
        phase = group.phase
        freed = self._drop(group)
        released = Released(phase, group.generated, freed, group.read_tokens, group.cached_tokens)
        if not group.started:
            return released
        self._outbox.news.append((key, released))
        return None

    def end_reasoning(self, key: int) -> None:
        """End the reasoning of a request: see `SequenceGroup.end_reasoning`. Ignores one that has ended."""
        if group := self._groups.get(key):
            group.end_reasoning()

    def demand(self) -> Demand:
        """Start sequences in the free slots. Return whether there are rows to decode, and prompts to compute."""
        self._outbox.news += [(group.key, Started()) for group in self._running.admit()]
        ready = self._running.ready()
        self._rows, self._prompts = divide(self._adapter_turns.take(ready))
        waits = self.ledger.store.reading and not ready and not self.ledger.unclean  # after changes, others may start
        self._reads = self.ledger.store.reads if waits else None
        return Demand(urgent=bool(self._rows), bulk=bool(self._prompts))

    def plan(self, turn: Turn | None, *, contended: bool) -> Work[StepPlan]:
        """Return the next work, with a decode step, a prompt step or no step. Call it after `demand`."""
        plan = None if turn is None else self._next_step(turn, contended=contended)
        outbox, self._outbox = self._outbox, Outbox()
        return Work((*self.ledger.take_changes(), *outbox.changes), outbox.take_news(), plan)

    def follow_up(self, plan: StepPlan, result: StepResult) -> StepPlan | None:
        """Return a decode step of the same rows, if no other sequence may be in it, and no token or limit ends one."""
        if result.outcome is not Outcome.DONE:
            return None
        prepared = self._lead.take_prepared(plan)
        if self._outbox or not (prepared or self._lead.is_possible(plan)):  # one that left may have news
            return None
        self._planner.observe(plan, result)
        return self._lead.follow(plan, result, prepared)

    def apply(self, plan: StepPlan, result: StepResult) -> News:
        """Process the result of a step and return the news."""
        appended, following = self._lead.end(plan)
        cancelled = self.in_step.ended if following else self.in_step.end()
        self._counters.count(plan, result)
        self._adapter_turns.observe(plan, result)
        if result.outcome is Outcome.NO_ROOM:
            self._make_room()
        if result.outcome is not Outcome.DONE:
            return []
        self._outbox.count_wasted(cancelled, ((chunk.sequence, chunk.rows) for chunk in plan.chunks))
        if appended:
            return self._accept_appended(plan, result, following)
        self._planner.observe(plan, result)
        return self._advance(plan, result)

    def drop_unsaved(self, keys: Iterable[int]) -> None:
        """Remove prefixes that the runner had no memory to save. Call it before the next `plan`."""
        for key in keys:
            self.ledger.store.drop_unsaved(key)

    def metrics(self) -> EngineMetrics:
        """Return the current state and the counters."""
        return self._counters.metrics(self.ledger, self._adapter_turns, waiting=len(self._queue))

    def inspect(self) -> tuple[SlotInfo, ...]:
        """Return the current state of every slot."""
        return tuple(slot.info for slot in self.ledger.slots)

    def held(self) -> Iterator[HeldPrefix]:
        """Return the prefixes that can be reused: see `held_prefixes`."""
        return held_prefixes(self.ledger.slots, [one.prefix for one in self.ledger.store if not one.partial][::-1])

    def queue(self) -> Iterator[int]:
        """Return the keys of the waiting requests in order: see `Queue.order`."""
        return self._queue.order()

    def _next_step(self, turn: Turn, *, contended: bool) -> StepPlan | None:
        """Return the step of a turn, or no step if a sequence had to be preempted for its cells."""
        if turn is Turn.URGENT:
            plan = self._planner.decode_step(self._rows, running=len(self._running))
        else:
            shared = contended or bool(self._rows) or self._running.requests > 1
            plan = self._planner.prompt_step(self._prompts, hurried=shared, turns=max(1, self._adapter_turns.waiting))
        if not self.ledger.make_room(plan.tokens):
            self._make_room()
            return None
        self.in_step.begin({chunk.sequence: chunk.rows for chunk in plan.chunks})
        if not self._outbox:
            self._lead.prepare(plan)
        return plan

    def _accept_appended(self, plan: StepPlan, result: StepResult, following: StepPlan | None) -> News:
        """Process appended tokens. If the next step runs already, it adds a cell to each sequence that ends here."""
        news: News = []
        for chunk, (draw,) in zip(plan.chunks, result.draws, strict=True):
            sequence = chunk.sequence
            if sequence in self._running:  # not cancelled since
                self._accept(sequence, draw, news)
                if following and sequence not in self._running:
                    self.ledger.trim(sequence, chunk.start)
        if following and not self._outbox:
            self._lead.prepare(following)
        return news

    def _advance(self, plan: StepPlan, result: StepResult) -> News:
        news: News = []
        draws, scores = iter(result.draws), iter(result.scores)
        for chunk in plan.chunks:
            drawn = next(draws) if chunk.sample else ()
            sequence = chunk.sequence
            if chunk.score and sequence.echo:
                sequence.echo.record(chunk.start, next(scores))
            if sequence.state is not State.RUNNING:  # cancelled during the step
                continue
            progress = sequence.request.progress
            if progress and chunk.start == sequence.cached:
                news.append((self._running.group_of(sequence).key, sequence.progress()))
            of_prompt = sequence.advance(chunk.count, result.seconds)
            self._counters.computed_prompt_tokens += of_prompt
            if progress and of_prompt:
                news.append((self._running.group_of(sequence).key, sequence.progress()))
            if sequence.computed in sequence.checkpoints:
                self.ledger.save_checkpoint(sequence)
            if chunk.draft:
                self._accept_all(chunk, drawn, news)
            elif chunk.sample:
                self._append(sequence, drawn[0], news)
            elif sequence.pending == 0:
                self._finish(sequence, sequence.output.complete(), news)
        return news

    def _accept_all(self, chunk: Chunk, drawn: tuple[Draw, ...], news: News) -> None:
        """Accept the drawn tokens up to one that ends the sequence. Drop the cells of the other draft tokens."""
        sequence = chunk.sequence
        sequence.output.drafted += len(chunk.draft)
        for index, draw in enumerate(drawn):
            if index:  # its cell is that of an accepted draft token
                sequence.advance(1, 0.0)
                sequence.output.accepted += 1
            self._append(sequence, draw, news)
            if sequence.state is not State.RUNNING:
                break
        if sequence.computed < chunk.start + chunk.count + len(chunk.draft):
            self.ledger.trim(sequence, chunk.start)

    def _append(self, sequence: Sequence, draw: Draw, news: News) -> None:
        if not isinstance(draw, DrawFailure):
            sequence.append(draw)
        self._accept(sequence, draw, news)

    def _accept(self, sequence: Sequence, draw: Draw, news: News) -> None:
        group = self._running.group_of(sequence)
        if isinstance(draw, DrawFailure):
            self._fail(group, draw.message, draw.code, draw.param)
            return
        if not group.generated:
            news.append((group.key, FirstToken()))
        group.count_token()
        self._counters.generated_tokens += 1
        if group.too_detailed:
            self._fail(group, TOO_MANY_DETAILS, "too_large", "logprobs")
            return
        match sequence.output.accept(draw, sequence.generated):
            case Text() as text:
                news.append((group.key, text))
            case End() as end:
                self._finish(sequence, end, news)

    def _finish(self, sequence: Sequence, end: End, news: News) -> None:
        group = self._running.group_of(sequence)
        news.append((group.key, sequence.finished(end)))
        group.end(sequence)
        self._leave(sequence, keep=sequence.shares)
        self._outbox.changes.append(Close(sequence))
        if group.over:
            del self._groups[group.key]
        elif not group.running:
            self._queue.resume(group)

    def _make_room(self) -> None:
        """Evict cached cells. Without any, preempt the youngest sequence until another one has ended.

        A sequence that runs alone fails instead, because it can never fit.
        """
        if self.ledger.evict() or not self._running:
            return
        youngest = self._running.youngest
        if len(self._running) > 1:
            self._running.preempt(youngest)
        else:
            self._fail(self._running.group_of(youngest), "the KV cache has no room for this request, even alone")

    def _fail(self, group: SequenceGroup, message: str, code: str = "engine_failed", param: str | None = None) -> None:
        self._drop(group)
        self._outbox.news.append((group.key, Failed(message, code, param)))

    def _drop(self, group: SequenceGroup) -> int:
        """Remove a request with its sequences. Return the number of cells that it held."""
        del self._groups[group.key]
        self._queue.discard(group)
        ended = [*group.running, *group.waiting]
        freed = sum(self._leave(sequence, keep=False) for sequence in group.running)
        group.end_all()
        self._outbox.changes.extend(map(Close, ended))
        return freed

    def _leave(self, sequence: Sequence, *, keep: bool) -> int:
        """Take back the slot of a sequence that ends. Return the number of cells that it held."""
        sequence.work += self.in_step.leave(sequence, self._running.group_of(sequence).key)
        return self._running.leave(sequence, keep=keep)
