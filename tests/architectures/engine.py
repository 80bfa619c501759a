"""A whole engine in this process: the lanes of a loaded model, stepped by hand, with an abort that tests can time."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from math import inf
from threading import Lock
from typing import Any, TypeAlias

import llama_cpp
import pytest

from engine.config import EngineConfig
from engine.core.kv.cell_changes import Removal
from engine.core.kv.ledger import KVLedger
from engine.core.lane import News
from engine.core.scheduler import Scheduler
from engine.core.step import Outcome, StepPlan, StepResult
from engine.core.turns import Turns
from engine.events import Event, Failed, Finished, Released, TokenDetail
from engine.info import EngineMetrics
from engine.llama.runner import LlamaRunner
from engine.request import GenerationRequest, Sampling
from engine.worker.lanes.generation import GenerationLane
from engine.worker.main import load
from tests.engine.driver import at_once

ROUNDING = 0.08
"""Difference of log-probabilities that comes from rounding, with the default types of cells."""
ALTERNATIVES = 5
GREEDY = Sampling(temperature=0.0, ignore_eos=True)


@contextmanager
def aborting(runner: LlamaRunner, read: int) -> Iterator[None]:
    """Abort the step within the block when llama.cpp reads its abort flag for the n-th time."""
    reads = count(1)

    @llama_cpp.ggml_abort_callback  # type: ignore[untyped-decorator]
    def ask(_data: int) -> bool:
        return next(reads) >= read

    context = runner._context
    llama_cpp.llama_set_abort_callback(context.handle, ask, None)
    try:
        yield
    finally:
        llama_cpp.llama_set_abort_callback(context.handle, context._abort.callback, context._abort.data)


Answer: TypeAlias = tuple[TokenDetail, ...]


class Engine:
    """A model with its lanes. Every test leaves it idle and without cells."""

    def __init__(self, config: EngineConfig, stack: ExitStack, *, exact: bool) -> None:
        """Load the model. An exact engine computes with single precision where llama.cpp lets it."""
        self.exact = exact
        self.rounding = 0.02 if exact else ROUNDING
        if exact:
            config = replace(config, flash_attention=False, kv_type_k="f32", kv_type_v="f32")
        self.loaded = load(config, lambda _share: None, stack)
        assert isinstance(self.loaded.runner, LlamaRunner)
        self.runner = self.loaded.runner
        lane = self.loaded.lanes(config)[GenerationRequest]
        assert isinstance(lane, GenerationLane)
        assert isinstance(lane.scheduler, Scheduler)
        self.lane = lane
        self.scheduler = lane.scheduler
        self.events: dict[int, list[Event]] = {}
        self.plans: list[StepPlan] = []
        self._turns = Turns(1)
        self._lock = Lock()
        self._key = 0

    @property
    def metrics(self) -> EngineMetrics:
        return self.scheduler.metrics()

    @property
    def ledger(self) -> KVLedger:
        return self.scheduler.ledger

    @property
    def max_draft(self) -> int:
        return self.loaded.model.traits.max_draft

    def add(self, prompt: list[int], tokens: int, **fields: Any) -> int:
        """Queue a request for so many greedy tokens. Return its key."""
        self._key += 1
        defaults = {"sampling": GREEDY, "logprobs": ALTERNATIVES, "speculative": False}
        request = GenerationRequest(
            id=f"r{self._key}", prompts=(tuple(prompt),), max_tokens=tokens, **{**defaults, **fields}
        )
        self.scheduler.add(at_once(self.lane.admit(self._key, request)))
        return self._key

    def cancel(self, key: int) -> None:
        """Cancel a request."""
        if released := self.scheduler.cancel(key):
            self._record([(key, released)])

    def step(self, run: Callable[[StepPlan], StepResult] | None = None) -> StepPlan | None:
        """Run one turn of the step loop, with `run` instead of the lane's own."""
        [turn] = self._turns.next([self.scheduler.demand()])
        work = self.scheduler.plan(turn, contended=False)
        self.lane.carry_out(work.changes, self._lock)
        self._record(work.news)
        if work.plan is None:
            return None
        self.plans.append(work.plan)
        self.lane.arm()
        self._record(self.scheduler.apply(work.plan, (run or self.lane.run)(work.plan)))
        return work.plan

    def abort_step(self, key: int, read: int) -> None:
        """Cancel a request in its step, which is aborted at that read of the abort flag."""

        def run(plan: StepPlan) -> StepResult:
            self.cancel(key)
            assert self.scheduler.in_step.abandoned
            with aborting(self.runner, read):
                result = self.lane.run(plan)
            assert result.outcome is Outcome.ABORTED
            return result

        self.step(run)

    def drain(self) -> None:
        """Step until there is no work."""
        for _ in range(5000):
            if not self.scheduler.busy:
                return
            self.step()
        raise AssertionError("the engine does not become idle")

    def run(self, prompt: list[int], tokens: int, **fields: Any) -> Answer:
        """Return the answer to a request that runs beside nothing else."""
        key = self.add(prompt, tokens, **fields)
        self.drain()
        return self.answer(key)

    def uncached(self, prompt: list[int], tokens: int) -> Answer:
        """Return the answer to a request that neither reuses cells nor leaves any."""
        return self.run(prompt, tokens, cache_prompt=False)

    def answer(self, key: int, choice: int = 0) -> Answer:
        """Return the tokens of a choice, with their alternatives."""
        return self.finished(key, choice).details

    def check(self, answer: Answer, expected: Answer) -> None:
        """Check that two answers are equal up to rounding."""
        check_equal(answer, expected, self.rounding)

    def finished(self, key: int, choice: int = 0) -> Finished:
        """Return the end of a choice that was neither cancelled nor failed."""
        assert not any(isinstance(event, Failed | Released) for event in self.events[key]), self.events[key]
        [end] = [event for event in self.events[key] if isinstance(event, Finished) and event.choice == choice]
        return end

    @contextmanager
    def counted(self) -> Iterator[Callable[[], int]]:
        """Count the prompt tokens that are computed within the block."""
        before = self.metrics.computed_prompt_tokens
        yield lambda: self.metrics.computed_prompt_tokens - before

    def check_idle(self) -> None:
        """Check that no sequence holds a slot and no request has cells or a sampler."""
        metrics = self.metrics
        assert (metrics.free, metrics.held, metrics.waiting, metrics.active_tokens) == (metrics.slots, 0, 0, 0)
        assert not self.scheduler.busy
        assert not self.runner._drawer._samplers

    def empty(self) -> None:
        """Drop all cached cells of the slots, and all saved prefixes that this makes."""
        for slot in self.ledger.slots:
            slot.cached = []
            self.runner.cache.remove(Removal(slot.seq_id, 0))

    def _record(self, news: News) -> None:
        for key, event in news:
            self.events.setdefault(key, []).append(event)


def check_equal(answer: Answer, expected: Answer, rounding: float = ROUNDING) -> None:
    """Check that two answers with alternatives are equal up to rounding, a difference of log-probabilities.

    Where one draws another token, both must be about as probable. From there on the answers cannot be compared.
    """
    assert len(answer) == len(expected)
    for token, other in zip(answer, expected, strict=True):
        logprobs = {one.id: one.logprob for one in other.top}
        assert token.logprob is not None
        assert logprobs.get(token.id, -inf) == pytest.approx(token.logprob, abs=rounding)
        if token.id != other.id:
            assert token.logprob == pytest.approx(other.logprob, abs=2 * rounding)
            return
