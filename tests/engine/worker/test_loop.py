"""The step loop over three lanes of unknown kinds: turns, faults and cancels."""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from threading import Lock

import pytest

from engine.config import EngineConfig
from engine.core.lane import News, StepMembers, Work
from engine.core.partition import partition_hash
from engine.core.step import Change, StepPlan
from engine.core.turns import Demand, Turn
from engine.errors import Busy, EngineFault
from engine.events import Embedded, Event, Failed, Finished, Released, Text
from engine.info import EngineMetrics, HeldPrefix, SlotInfo
from engine.request import EmbeddingRequest, GenerationRequest
from engine.testing.fake_embedder import FakeEmbedder
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from engine.worker.lanes.generation import GenerationLane
from engine.worker.lanes.lane import AnyLane
from engine.worker.loaded import LoadedModel
from engine.worker.loop import StepLoop
from engine.worker.progress import Progress
from engine.worker.slices import Effort, Slices
from engine.worker.slot_states import SlotState
from tests.engine.driver import AtOnce, Driver, at_once, request

GUARD = 10.0
"""Seconds. No test takes so long unless it fails."""
DONE = Embedded(0, b"")
"""The only event of an errand."""


@dataclass
class Errand:
    """A request of a third kind: it ends after so many passes."""

    key: int
    passes: int
    client: str = ""
    prompt_tokens: tuple[int, ...] = (1,)


class ErrandLane:
    """A lane and its scheduler in one."""

    def __init__(self, *, queue_limit: int = 100) -> None:
        self.errands: dict[int, Errand] = {}
        self.in_step: StepMembers[int] = StepMembers()
        self.on_pass: Callable[[], None] = lambda: None
        self.aborted = False
        self.contended: list[bool] = []
        self._queue_limit = queue_limit
        self._news: News = []

    @property
    def scheduler(self) -> "ErrandLane":
        return self

    @property
    def busy(self) -> bool:
        return bool(self.errands or self._news)

    def __contains__(self, key: int) -> bool:
        return key in self.errands

    def check_room(self, _client: str) -> None:
        if len(self.errands) >= self._queue_limit:
            raise Busy("full")

    def admit(self, key: int, request: int) -> Slices[Errand]:
        yield Effort.LIGHT
        return Errand(key, request)

    def add(self, job: Errand) -> None:
        self.errands[job.key] = job

    def cancel(self, key: int) -> None:
        del self.errands[key]
        self.in_step.leave(key, key)
        self._news.append((key, Released("errand", 0, 0)))

    def demand(self) -> Demand:
        return Demand(urgent=False, bulk=bool(self.errands))

    def plan(self, turn: Turn | None, *, contended: bool) -> Work[list[int]]:
        news, self._news = self._news, []
        if turn is None:
            return Work((), news, None)
        self.contended.append(contended)
        self.in_step.begin(dict.fromkeys(self.errands, 1))
        return Work((), news, list(self.errands))

    def carry_out(self, changes: Iterable[Change], lock: Lock) -> None:
        """Ignore a plan's changes; an errand has no cells."""

    def arm(self) -> None:
        self.aborted = False

    def run(self, plan: list[int]) -> list[int]:
        self.on_pass()
        return [] if self.aborted else plan

    def needs_all_cores(self, _plan: object) -> bool:
        return False

    def abort(self) -> None:
        self.aborted = True

    def follow_up(self, _plan: list[int], _result: list[int]) -> None:
        """Have no step that is known before the result is applied."""

    def apply(self, _plan: list[int], result: list[int]) -> News:
        self.in_step.end()
        news: News = []
        for key in result:
            if errand := self.errands.get(key):
                errand.passes -= 1
                if not errand.passes:
                    del self.errands[key]
                    news.append((key, DONE))
        return news

    def metrics(self) -> EngineMetrics:
        return EngineMetrics(waiting=len(self.errands))

    def held(self) -> Iterator[HeldPrefix]:
        return iter(())

    def queue(self) -> Iterator[int]:
        return iter(())

    def inspect(self) -> tuple[SlotInfo, ...]:
        return ()


class Engine:
    """A step loop over the lanes of a model and one of errands, one step at a time."""

    def __init__(self) -> None:
        self.passes = ""
        """Every pass: D decodes, P computes prompts, E embeds, X runs errands."""
        self.news: dict[int, list[Event]] = {}
        """All events by key."""
        self.model = FakeModel(context=4096)
        self.runner, self.embedder, self.errands = FakeRunner(self.model), FakeEmbedder(), ErrandLane()
        loaded = LoadedModel(self.model, self.runner, self.embedder.limits, lambda _cells: self.embedder)
        lanes = loaded.lanes(EngineConfig(model=""))
        self._generations, self._embeddings = lanes[GenerationRequest], lanes[EmbeddingRequest]
        self._lanes = [*lanes.values(), self.errands]
        self.loop = StepLoop(self._lanes, self._publish, Progress(), AtOnce())
        self._keys = count(1)
        self.runner.on_pass = self._note_plan
        self.embedder.on_pass = lambda: self._note("E")
        self.errands.on_pass = lambda: self._note("X")

    def generate(self, prompt: str = "hello", max_tokens: int = 8) -> int:
        return self._add(self._generations, request(prompt, max_tokens=max_tokens, cache_prompt=False))

    def embed(self, *inputs: str) -> int:
        return self._add(self._embeddings, EmbeddingRequest(id="test", inputs=inputs or ("hello",)))

    def send(self, passes: int = 1) -> int:
        return self._add(self.errands, passes)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.loop._step()

    def decode(self) -> int:
        """Start a long generation and step until it decodes."""
        key = self.generate(max_tokens=500)
        while "D" not in self.passes:
            self.step()
        self.passes = ""
        return key

    def drain(self) -> None:
        """Step until every lane is idle."""
        while any(lane.scheduler.busy for lane in self._lanes):
            self.step()

    def metrics(self) -> EngineMetrics:
        found: list[EngineMetrics] = []
        self.loop.inspect(lambda _slots, metrics: found.append(metrics))
        return found[0]

    def ended(self, key: int) -> bool:
        return any(isinstance(event, Finished | Failed | Released | Embedded) for event in self.news.get(key, []))

    def _add(self, lane: AnyLane, asked: object) -> int:
        key = next(self._keys)
        self.loop.add(lane, at_once(lane.admit(key, asked)), lambda: None)
        return key

    def _note(self, kind: str) -> None:
        self.passes += kind

    def _note_plan(self, plan: StepPlan) -> None:
        self._note("D" if plan.decode else "P")

    def _publish(self, news: Iterable[tuple[int, Event]], _metrics: EngineMetrics) -> None:
        for key, event in news:
            self.news.setdefault(key, []).append(event)


def test_bulk_passes_of_all_lanes_take_turns() -> None:
    engine = Engine()
    engine.generate("x" * 2000)
    engine.embed(*["x" * 200] * 4)
    engine.send(passes=20)
    engine.step(12)
    assert engine.passes == engine.passes[:3] * 4
    assert sorted(engine.passes[:3]) == ["E", "P", "X"]


@pytest.mark.parametrize("all_cores", [True, False])
def test_a_result_is_applied_before_a_step_that_needs_all_cores(
    monkeypatch: pytest.MonkeyPatch, *, all_cores: bool
) -> None:
    engine = Engine()
    engine.model.traits = replace(engine.model.traits, uses_all_cores=all_cores)
    begun: list[Callable[[], None]] = []

    def begin(work: Callable[[], None]) -> None:
        begun.append(work)
        work()

    monkeypatch.setattr(engine.loop._background, "begin", begin)
    engine.decode()
    engine.step(5)
    assert (not begun) is all_cores
    engine.generate(max_tokens=100)
    engine.drain()
    assert begun, "steps of two rows"


def test_at_most_one_bulk_pass_runs_between_two_decode_passes() -> None:
    engine = Engine()
    engine.decode()
    engine.generate("x" * 2000)
    engine.embed(*["x" * 200] * 4)
    engine.send(passes=20)
    engine.step(12)
    decodes, others = sorted([engine.passes[::2], engine.passes[1::2]])
    assert decodes == "DDDDDD"
    assert others == others[:3] * 2
    assert sorted(others[:3]) == ["E", "P", "X"]


def test_a_lane_without_neighbours_has_every_turn() -> None:
    engine = Engine()
    engine.send(passes=3)
    engine.step(3)
    assert engine.passes == "XXX"
    assert engine.errands.contended == [False] * 3


def test_a_lane_knows_if_others_wait_for_its_pass() -> None:
    engine = Engine()
    engine.decode()
    engine.send(passes=3)
    engine.step(6)
    assert engine.errands.contended == [True] * 3


def test_an_unexpected_exception_leaves_the_loop() -> None:
    engine = Engine()
    engine.send()

    def fail() -> None:
        raise EngineFault("broken")

    engine.errands.on_pass = fail
    with pytest.raises(EngineFault, match="broken"):
        engine.step()


def test_a_cancel_reaches_the_lane_of_its_request() -> None:
    engine = Engine()
    keys = [engine.generate("x" * 500), engine.embed("x" * 200), engine.send(passes=9)]
    engine.step(3)
    for at, key in enumerate(keys):
        engine.loop.cancel(key)
        engine.step()
        assert [engine.ended(each) for each in keys] == [True] * (at + 1) + [False] * (2 - at)
        assert isinstance(engine.news[key][-1], Released)
    engine.loop.cancel(keys[0])
    assert engine.news[keys[0]][-1] == Released("gone", 0, 0)


def test_a_cancel_aborts_the_pass_of_its_lane_and_no_other() -> None:
    engine = Engine()
    generation, embedding, errand = engine.generate("x" * 500), engine.embed("x" * 200), engine.send(passes=9)
    while not {"P", "E"} <= set(engine.passes):
        engine.step()
    aborted: list[tuple[bool, bool, bool]] = []

    def hang_up() -> None:
        for key in (generation, embedding, errand):
            engine.loop.cancel(key)
            aborted.append((engine.runner.aborted.is_set(), engine.embedder.aborted.is_set(), engine.errands.aborted))

    engine.errands.on_pass = hang_up
    engine.drain()
    assert aborted == [(False, False, False), (False, False, False), (False, False, True)]


def test_the_metrics_of_all_lanes_are_added() -> None:
    engine = Engine()
    engine.generate(max_tokens=2)
    engine.embed("hello", "you")
    engine.drain()
    engine.send()
    metrics = engine.metrics()
    assert metrics.steps == len(engine.passes)
    assert (metrics.slots, metrics.embeddings, metrics.prompt_tokens, metrics.waiting) == (4, 2, 5, 1)


def test_each_lane_has_its_own_queue_limit() -> None:
    engine = Engine()
    engine.errands._queue_limit = 1
    engine.send()
    with pytest.raises(Busy):
        engine.send()
    with pytest.raises(Busy):
        engine.loop.check_room(engine.errands, "")
    engine.generate()
    engine.embed()


class Overlap:
    """A step loop in its own thread. From the second text on, each waits until the next pass has begun."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        model = FakeModel(context=4096)
        runner = FakeRunner(model)
        loaded = LoadedModel(model, runner, FakeEmbedder().limits, lambda _cells: FakeEmbedder())
        lanes = loaded.lanes(EngineConfig(model=""))
        self.loop = StepLoop(lanes.values(), self._publish, Progress())
        self.waited: list[bool] = []
        self.ended = threading.Event()
        self._lane = lanes[GenerationRequest]
        self._fails_at = fails_at
        self._passes = self._texts = 0
        self._begun = threading.Condition()
        runner.on_pass = self._note_pass

    def generate(self, max_tokens: int) -> None:
        asked = request("hello", max_tokens=max_tokens, stream=True)
        self.loop.add(self._lane, at_once(self._lane.admit(1, asked)), lambda: None)

    def _note_pass(self, _plan: StepPlan) -> None:
        with self._begun:
            self._passes += 1
            self._begun.notify()

    def _publish(self, news: Iterable[tuple[int, Event]], _metrics: EngineMetrics) -> None:
        for _, event in news:
            if isinstance(event, Text):
                self._note_text()
            elif isinstance(event, Finished):
                self.ended.set()

    def _note_text(self) -> None:
        self._texts += 1
        if self._texts == self._fails_at:
            raise EngineFault("the pipe has gone")
        if self._texts > 1:
            with self._begun:
                self.waited.append(self._begun.wait_for(lambda: self._passes > self._texts, GUARD))


def test_texts_are_sent_while_the_next_pass_runs() -> None:
    overlap = Overlap()
    overlap.generate(max_tokens=12)
    thread = threading.Thread(target=overlap.loop.run)
    thread.start()
    assert overlap.ended.wait(GUARD)
    overlap.loop.stop()
    thread.join(GUARD)
    assert not thread.is_alive()
    assert overlap.waited == [True] * 10


def test_an_error_while_the_next_pass_runs_ends_the_loop() -> None:
    overlap = Overlap(fails_at=3)
    overlap.generate(max_tokens=500)
    with pytest.raises(EngineFault, match="the pipe has gone"):
        overlap.loop.run()


def test_a_pass_whose_rows_have_all_ended_is_aborted() -> None:
    engine = Engine()
    aborted: list[bool] = []
    engine.runner.on_pass = lambda _plan: aborted.append(engine.runner.aborted.is_set())
    key = engine._add(engine._generations, request("ab", max_tokens=50, stop=("z",), stream=True))
    engine.drain()
    engine.step()
    assert engine.ended(key)
    assert aborted[-1:] == [True]
    assert not any(aborted[:-1])


def ahead() -> Engine:
    """Return an engine with one generation, whose next step is known."""
    engine = Engine()
    engine.decode()
    while engine.loop._following is None:
        engine.step()
    engine.passes = ""
    return engine


def test_a_job_between_steps_comes_after_the_known_step() -> None:
    engine = ahead()
    done: list[str] = []

    engine.loop.between_steps(lambda: done.append(engine.passes), when=lambda: True)
    engine.step(2)
    assert done == ["D"]


def test_steps_are_known_while_a_job_waits() -> None:
    engine = ahead()
    engine.loop.between_steps(lambda: None, when=lambda: False)
    engine.step()
    assert engine.loop._following is not None


@pytest.mark.parametrize("steps", range(4))
def test_a_job_that_waits_comes_after_the_step_that_runs(steps: int) -> None:
    engine = ahead()
    done: list[str] = []
    engine.loop.between_steps(lambda: done.append(engine.passes), when=lambda: len(engine.passes) >= steps)
    engine.step(10)
    assert done == ["D" * max(1, steps)]


def test_no_step_follows_a_stop_also_where_steps_cannot_be_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ahead()
    monkeypatch.setattr(engine.runner, "abort", lambda: None)

    def stop(_plan: StepPlan) -> None:
        engine.passes += "D"
        engine.loop.stop()

    engine.runner.on_pass = stop
    engine.loop.run()
    assert engine.passes == "D"


def test_the_latest_metrics_come_last_when_two_threads_have_news(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    first, second = engine.generate(), engine.generate()
    waiting: list[int] = []
    other = threading.Thread(target=engine.loop.cancel, args=(second,))

    def publish(_news: object, metrics: EngineMetrics) -> None:
        if not waiting and other.ident is None:
            other.start()
            other.join(0.1)  # it publishes at once if it does not wait for this thread
        waiting.append(metrics.waiting)

    monkeypatch.setattr(engine.loop, "_publish", publish)
    engine.loop.cancel(first)
    other.join()
    assert waiting == [1, 0]


def test_a_cancel_that_finds_a_request_ended_comes_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    key = engine.generate(max_tokens=1)
    other = threading.Thread(target=engine.loop.cancel, args=(key,))
    lock = engine.loop._lock

    class Watched:
        """The loop's lock. Right after the request has ended, another thread cancels it."""

        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()
            if key not in engine._generations.scheduler and other.ident is None:
                other.start()
                other.join(0.1)  # it publishes at once if it does not wait for this thread

    monkeypatch.setattr(engine.loop, "_lock", Watched())
    engine.drain()
    other.join()
    assert [type(event) for event in engine.news[key][-2:]] == [Finished, Released]


@pytest.mark.parametrize("by", ["a stop", "a cancel"])
def test_a_planned_step_is_dropped_by(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    key = engine.generate()

    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        if by == "a stop":
            engine.loop.stop()
        else:
            engine.loop.cancel(key)

    monkeypatch.setattr(engine._generations, "carry_out", interrupt)  # called between the plan and the step
    engine.step()
    assert engine.passes == ""
    assert not engine._generations.scheduler.in_step.abandoned


@pytest.mark.parametrize("cancelled", [False, True])
def test_work_for_a_slot_sleeps_while_its_sequence_waits_for_a_file(
    monkeypatch: pytest.MonkeyPatch, *, cancelled: bool
) -> None:
    prompt = "a long beginning " * 30
    earlier = Driver(FakeModel(slots=2, context=2048), store_budget=10**6, on_disk=True)
    earlier.add(prompt, max_tokens=2)
    earlier.drain()
    model = FakeModel(slots=2, context=2048)
    runner = FakeRunner(model)
    runner.cache.files = earlier.run.cache.files
    driver = Driver(model, runner, store_budget=10**6, on_disk=True)
    lane = GenerationLane(driver.scheduler, runner, model, None)
    loop = StepLoop([lane], lambda _news, _metrics: None, Progress())
    asleep, done = threading.Event(), threading.Event()
    wait = loop._wake.wait

    def record(timeout: float | None = None) -> bool:
        if loop._jobs:
            asleep.set()
        return wait(timeout)

    monkeypatch.setattr(loop._wake, "wait", record)
    loop.add(lane, at_once(lane.admit(1, request(prompt + "and an end", max_tokens=3))), lambda: None)
    driver.scheduler.demand()  # it has its slot, and its file is read
    loop.between_steps(done.set, when=lambda: driver.ledger.held == 0)
    stepping = threading.Thread(target=loop.run)
    stepping.start()
    assert asleep.wait(GUARD)
    assert not done.is_set()
    loop.cancel(1) if cancelled else loop.locked(driver.deliver)
    assert done.wait(GUARD)
    loop.stop()
    stepping.join(GUARD)


def test_work_for_a_slot_comes_before_requests_that_wait_for_it() -> None:
    driver = Driver(FakeModel(slots=1))
    lane = GenerationLane(driver.scheduler, driver.run, driver.model, None)
    loop = StepLoop([lane], lambda _news, _metrics: None, Progress(), AtOnce())
    for key in (1, 2, 3):
        loop.add(lane, at_once(lane.admit(key, request(max_tokens=3, cache_prompt=False))), lambda: None)
    loop._step()
    saved: list[tuple[SlotState, list[int]]] = []

    def save() -> None:
        saved.append((lane.slot_states.read(0, partition_hash("")), list(driver.scheduler.queue())))

    loop.between_steps(save, when=lambda: lane.slot_states.is_free(0))
    while driver.scheduler.busy:
        loop._step()
    assert saved == [(SlotState((), b""), [2, 3])]
