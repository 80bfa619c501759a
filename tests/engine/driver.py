"""A scheduler and a fake runner, driven by hand: the work of the step loop, without threads."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from typing_extensions import override

from engine.background import Background
from engine.core.changes import carry_out
from engine.core.kv.pooled_ledger import make_ledger
from engine.core.kv.prefix_files import PrefixFiles
from engine.core.kv.prefix_store import PrefixStore
from engine.core.lane import News, Work
from engine.core.scheduler import Scheduler
from engine.core.sequence import Sequence, State
from engine.core.step import StepPlan, StepResult
from engine.core.turns import Turns
from engine.core.window import ContextWindow
from engine.events import Event, Finished, Released, Text, TokenDetail
from engine.prompt import Prompt
from engine.request import GenerationRequest
from engine.testing.fake_cache import PARTIAL_CELLS
from engine.testing.fake_model import FakeModel, letters, score, spell, weights
from engine.testing.fake_runner import FakeRunner
from engine.worker.admission import admit
from engine.worker.slices import Slices

T = TypeVar("T")


def request(*prompts: Prompt, **fields: Any) -> GenerationRequest:
    return GenerationRequest(id="test", prompts=prompts or ("hello",), **{"max_tokens": 8, **fields})


def running(
    seq_id: int, tokens: Iterable[int], limit: int = 1000, *, grammar: object | None = None, **fields: Any
) -> Sequence:
    """Return a sequence that runs in a slot, as the scheduler makes it."""
    made = Sequence(request("", **fields), 0, list(tokens), limit, grammar=grammar)
    made.enter(State.RUNNING)
    made.seq_id = seq_id
    return made


def continuation(
    prompt: str, tokens: int, window: ContextWindow | None = None, draw: Callable[[list[int]], int] = letters
) -> str:
    """Return the answer of a model that computes each token by itself, in a slot that discards as llama-server does."""
    known, text = list(prompt.encode()), ""
    for _ in range(tokens):
        if window is not None and text and window.is_full(len(known) - 1):
            start, count = window.gap(len(known) - 1)
            del known[start : start + count]
        known.append(draw(known))
        text += chr(known[-1])
    return text


def at_once(slices: Slices[T]) -> T:
    """Do all the pieces of a work, and return its result."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result


def bytes_of(tokens: int) -> int:
    """Return the bytes of saved cells, as if they were llama.cpp's."""
    return 100 + 10 * tokens


def partial_bytes_of(_tokens: int) -> int:
    """Return the bytes of a partial state, as if it were llama.cpp's."""
    return bytes_of(PARTIAL_CELLS)


def direct(tokens: list[int], alternatives: int) -> list[TokenDetail]:
    """Return the details that a fake runner with `letters` gives for these tokens, each computed from all before it."""
    details = [TokenDetail(tokens[0], spell(tokens[0], special=False))]
    for at, token in enumerate(tokens[1:], start=1):
        shares = weights(tokens[:at], letters(tokens[:at]))
        details.append(TokenDetail(token, spell(token, special=False), *score(shares, token, alternatives)))
    return details


class AtOnce(Background):
    """Does each piece of work when it begins, so that a step loop can be driven by hand."""

    def __init__(self) -> None:
        super().__init__("never started")

    @override
    def begin(self, work: Callable[[], None]) -> None:
        work()


@dataclass
class Driver:
    """Steps one scheduler over one runner and keeps all events by key.

    With `ahead` a step may start before the result of the last one is applied, as in the step loop.
    """

    model: FakeModel = field(default_factory=FakeModel)
    runner: FakeRunner | None = None
    queue_limit: int = 1000
    store_budget: int = 0
    rewinds: bool = True
    on_disk: bool = False
    ahead: bool = False
    key: int = 0
    news: dict[int, list[Event]] = field(default_factory=dict)
    plans: list[StepPlan] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = self.runner or FakeRunner(self.model, rewinds=self.rewinds)
        self.store = PrefixStore(self.store_budget, bytes_of, partial_bytes_of if self.rewinds else None)
        traits = self.model.traits
        self.files = PrefixFiles(self.model.info.context, can_trim=not traits.needs_checkpoints)
        for file in self.run.cache.files.known.values():
            self.files.add(file)
        self.ledger = make_ledger(self.model.info.slots, traits, self.store, self.files if self.on_disk else None)
        self.scheduler = Scheduler(self.ledger, step_target=0.1, queue_limit=self.queue_limit)
        self.turns = Turns(1)
        self.following: StepPlan | None = None
        self.unapplied: tuple[StepPlan, StepResult] | None = None

    def add(self, *prompts: Prompt, **fields: Any) -> int:
        self.key += 1
        self.scheduler.check_room(fields.get("client", ""))
        self.scheduler.add(at_once(admit(self.key, request(*prompts, **fields), self.model)))
        return self.key

    def serve(self, *prompts: Prompt, **fields: Any) -> int:
        """Add a request, and step until the scheduler is idle."""
        key = self.add(*prompts, **fields)
        self.drain()
        return key

    def cancel(self, key: int) -> None:
        released = self.scheduler.cancel(key) if key in self.scheduler else Released("gone", 0, 0)
        if released:
            self._record([(key, released)])

    def plan(self) -> Work[StepPlan]:
        """Plan as the step loop does for its only lane."""
        [turn] = self.turns.next([self.scheduler.demand()])
        return self.scheduler.plan(turn, contended=False)

    def step(
        self, during: Callable[[], None] = lambda: None, *, before: Callable[[], None] = lambda: None
    ) -> StepPlan | None:
        """Run one turn of the step loop; `before` runs between the plan and its pass, `during` while the pass runs."""
        if self.following:
            before()
            return self._run(self.following, during)
        work = self.plan()
        self.scheduler.drop_unsaved(carry_out(work.changes, self.run))
        self._record(work.news)
        before()
        self.check()
        if work.plan is None or not self.scheduler.in_step.complete:
            return None
        self.run.arm()
        return self._run(work.plan, during)

    def compute(self, during: Callable[[], None] = lambda: None) -> StepPlan:
        """Run one turn of the step loop, which must have a step."""
        plan = self.step(during)
        assert plan is not None
        return plan

    def _run(self, plan: StepPlan, during: Callable[[], None]) -> StepPlan:
        self.plans.append(plan)
        self.following = None

        def on_pass(_plan: StepPlan) -> None:
            during()
            self.apply()

        self.run.on_pass = on_pass
        result = self.run.run(plan)
        self.unapplied = plan, result
        self.following = self.scheduler.follow_up(plan, result) if self.ahead else None
        if self.following is None:
            self.apply()
        self.check()
        return plan

    def apply(self) -> None:
        """Apply the result of the last step, if that has not been done yet."""
        if self.unapplied:
            self._record(self.scheduler.apply(*self.unapplied))
            self.unapplied = None

    def finish(self, key: int) -> None:
        """Step until a choice of a request has ended."""
        while not self.has_finished(key):
            self.step()

    def drain(self, limit: int = 10_000) -> None:
        """Step until the scheduler is idle, and every file is written and read."""
        for _ in range(limit):
            if self.scheduler.busy or self.following:
                self.step()
            elif self.run.cache.files.reports:
                self.deliver()
            else:
                return
        raise AssertionError(f"still busy after {limit} steps")

    def deliver(self) -> None:
        """Report what became of files, as their thread does."""
        for report in self.run.cache.take_reports():
            self.ledger.record(report)

    def text(self, key: int, choice: int = 0) -> str:
        return "".join(e.text for e in self.news[key] if isinstance(e, Text | Finished) and e.choice == choice)

    def details(self, key: int, choice: int = 0) -> list[TokenDetail]:
        told = [e for e in self.news[key] if isinstance(e, Text | Finished) and e.choice == choice]
        return [detail for event in told for detail in event.details]

    def last(self, key: int) -> Event:
        return self.news[key][-1]

    def finished(self, key: int) -> Finished:
        """Return the last event of a request, which must be the end of a choice."""
        last = self.last(key)
        assert isinstance(last, Finished)
        return last

    def released(self, key: int) -> Released:
        """Return the last event of a request, which must be its release."""
        last = self.last(key)
        assert isinstance(last, Released)
        return last

    def has_finished(self, key: int) -> bool:
        """Return whether the last event of a request is the end of a choice."""
        return isinstance(self.news.get(key, [None])[-1], Finished)

    def check(self) -> None:
        """Check the invariants that hold between any two steps."""
        metrics = self.scheduler.metrics()
        assert metrics.free + metrics.held == metrics.slots == len(self.ledger.slots)
        assert metrics.held == sum(slot.holder is not None for slot in self.ledger.slots)
        for slot in self.ledger.slots:
            assert not (slot.holder and slot.cached), "a held slot is not a cache"
            if slot.holder:
                assert slot.holder.seq_id == slot.seq_id
        whole = {stored.key: stored.prefix.tokens for stored in self.store if not stored.partial}
        partial = {stored.key: stored.prefix.tokens for stored in self.store if stored.partial}
        held = sum(bytes_of(len(tokens)) for tokens in whole.values()) + partial_bytes_of(0) * len(partial)
        assert self.store.bytes == held <= self.store_budget
        assert metrics.stored_tokens == sum(map(len, whole.values()))
        if not self.ledger.unclean:
            assert (self.run.cache.saved, self.run.cache.checkpoints) == (whole, partial)

    def _record(self, news: News) -> None:
        for key, event in news:
            self.news.setdefault(key, []).append(event)
