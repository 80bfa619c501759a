"""Group 7, manual memory: batches leaked and were freed twice.

Every C object has one owner, which frees it on every path, and only the step thread touches the context.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import llama_cpp
import pytest

from engine.config import EngineConfig
from engine.errors import EngineError
from engine.events import Event, Failed, Finished, Released
from engine.info import EngineMetrics
from engine.llama import context, devices, drawing
from engine.llama.runner import LlamaRunner
from engine.prompt import Prompt
from engine.protocol.messages import Ask, Cancel, FromEngine, Generate, Inspect, Loaded, LoadFailed, Loading, Step
from engine.request import GenerationRequest, Sampling
from engine.sampling import candidates
from engine.worker.loop import StepLoop
from engine.worker.main import load
from engine.worker.progress import Progress
from engine.worker.worker import Worker
from tests.c_calls import Handles
from tests.engine.driver import AtOnce, at_once
from tests.models import model_path

GUARD = 20.0
NO_ROOM, ABORTED = 1, 2
LOADED = ["llama_init_from_model", "llama_model_load_from_file"]
"""The objects that are alive while a model is open."""


def config(**fields: Any) -> EngineConfig:
    small = {"slots": 3, "context": 256, "threads": 1, "step_target_ms": 100}
    return EngineConfig(model=str(model_path()), **{**small, **fields})


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> Iterator[Handles]:
    watched = Handles(monkeypatch)
    yield watched
    assert watched.alive == {}
    assert watched.mistakes == []


class Steps:
    """The engine's step loop on the real model, one step at a time."""

    def __init__(self, stack: ExitStack, **changes: Any) -> None:
        settings = config(**changes)
        loaded = load(settings, lambda _share: None, stack)
        self.model = loaded.model
        self.runner = loaded.runner
        lanes = loaded.lanes(settings)
        self._lane = lanes[GenerationRequest]
        self.loop = StepLoop(lanes.values(), self._publish, Progress(), AtOnce())
        self.news: dict[int, list[Event]] = {}

    def add(self, key: int, prompt: Prompt = "Once upon a time", n: int = 1, **sampling: Any) -> int:
        drawn = Sampling(**{"ignore_eos": True, "temperature": 0.0, **sampling})
        asked = GenerationRequest(id="r", prompts=(prompt,), n=n, max_tokens=8, sampling=drawn)
        self.loop.add(self._lane, at_once(self._lane.admit(key, asked)), lambda: None)
        return key

    def step(self) -> None:
        self.loop._step()

    def drain(self) -> None:
        while self._lane.scheduler.busy:
            self.step()

    def ends(self, key: int) -> list[type[Event]]:
        return [type(event) for event in self.news[key] if isinstance(event, Finished | Failed | Released)]

    def text(self, key: int) -> str:
        return "".join(event.text for event in self.news[key] if isinstance(event, Finished))

    def _publish(self, news: Iterable[tuple[int, Event]], _metrics: EngineMetrics) -> None:
        for key, event in news:
            self.news.setdefault(key, []).append(event)


def instead_of_a_pass(monkeypatch: pytest.MonkeyPatch, do: Callable[[], int]) -> None:
    """Call `do` once in place of the next `llama_decode`; its result is that of `llama_decode`."""
    decode = llama_cpp.llama_decode

    def once(*_arguments: object) -> int:
        monkeypatch.setattr(llama_cpp, "llama_decode", decode)
        return do()

    monkeypatch.setattr(llama_cpp, "llama_decode", once)


def test_samplers_are_freed_at_every_end_of_a_sequence(monkeypatch: pytest.MonkeyPatch, handles: Handles) -> None:
    with ExitStack() as stack:
        steps = Steps(stack)
        vocabulary = steps.model.info.vocabulary
        finished = steps.add(1, temperature=0.8, top_k=20, repeat_penalty=1.1, frequency_penalty=0.5)
        impossible = tuple((token, -1e300) for token in range(vocabulary))  # minus infinity as a float32
        failed = steps.add(2, logit_bias=impossible)
        cancelled = steps.add(3, n=5, temperature=1.0)
        for _ in range(3):
            steps.step()
        assert len(handles.alive) > len(LOADED)
        steps.loop.cancel(cancelled)
        steps.drain()
        assert (steps.ends(finished), steps.ends(failed), steps.ends(cancelled)) == ([Finished], [Failed], [Released])
        assert sorted(handles.alive.values()) == LOADED

        abandoned = steps.add(4)
        steps.step()

        def abandon() -> int:
            steps.loop.cancel(abandoned)
            return ABORTED

        instead_of_a_pass(monkeypatch, abandon)
        steps.drain()
        assert steps.ends(abandoned) == [Released]
        assert sorted(handles.alive.values()) == LOADED

        alike = [steps.add(key) for key in (5, 6)]
        for _ in range(3):
            steps.step()
        instead_of_a_pass(monkeypatch, lambda: NO_ROOM)
        steps.drain()
        assert [steps.ends(key) for key in alike] == [[Finished], [Finished]]
        assert steps.text(alike[0]) == steps.text(alike[1]), "one was put back, and began again"
        assert sorted(handles.alive.values()) == LOADED


def test_saved_prefixes_are_freed_with_the_runner_and_before() -> None:
    """Each conversation leases a slot of another, whose prefix moves to host memory."""
    with ExitStack() as stack:
        steps = Steps(stack, prefix_store=250_000)
        assert isinstance(steps.runner, LlamaRunner)
        states: list[weakref.ref[object]] = []
        for key in range(12):
            steps.add(key, tuple(key + at for at in range(150)))
            steps.drain()
            known = {id(state()) for state in states}
            states += [weakref.ref(state) for state in steps.runner.cache.saved.values() if id(state) not in known]
        alive = [state for state in states if state() is not None]
        assert 1 < len(alive) < len(states), "there is room for some"
        assert steps.loop._metrics().stored_tokens > 0
        assert sum(state.nbytes for state in steps.runner.cache.saved.values()) <= 250_000
    assert all(state() is None for state in states)


def nothing(*_arguments: object) -> None:
    return None


def fail(*_arguments: object) -> None:
    raise MemoryError


STAGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the weights": lambda patch: patch.setattr(llama_cpp, "llama_model_load_from_file", nothing),
    "what the model can": lambda patch: patch.setattr(llama_cpp, "llama_model_is_diffusion", lambda _model: True),
    "the memory for a context": lambda patch: patch.setattr(devices, "available_memory", lambda: 0),
    "the context": lambda patch: patch.setattr(llama_cpp, "llama_init_from_model", nothing),
    "the cache": lambda patch: patch.setattr(llama_cpp, "llama_get_memory", nothing),
    "the candidates": lambda patch: patch.setattr(drawing, "Candidates", fail),
    "the probe": lambda patch: patch.setattr(llama_cpp, "llama_decode", lambda *_arguments: -1),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_failed_load_leaves_no_object(monkeypatch: pytest.MonkeyPatch, handles: Handles, stage: str) -> None:
    STAGES[stage](monkeypatch)
    with pytest.raises((EngineError, MemoryError)), ExitStack() as stack:
        load(config(context=None), lambda _share: None, stack)
    assert handles.alive == {}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_gateway_that_dies_while_loading_leaves_no_object(handles: Handles, share: float) -> None:
    def report(loaded: float) -> None:
        if loaded >= share:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError), ExitStack() as stack:
        load(config(), report, stack)
    assert handles.alive == {}


CONTEXT_CALLS = [
    "llama_set_n_threads",
    "llama_decode",
    "llama_memory_seq_rm",
    "llama_state_seq_get_size_ext",
    "llama_state_seq_get_data_ext",
    "llama_state_seq_set_data_ext",
    "llama_sampler_free",
    "llama_init_from_model",
    "llama_free",
    "llama_model_free",
]

SHORT_CALLS = [(context, "_get_logits"), (candidates, "_apply_few")]


@pytest.mark.usefixtures("handles")
def test_only_the_step_thread_touches_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    callers: dict[str, set[str]] = {}

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object) -> object:
            callers.setdefault(name, set()).add(threading.current_thread().name)
            return function(*arguments)

        return call

    for name in CONTEXT_CALLS:
        monkeypatch.setattr(llama_cpp, name, noting(name, getattr(llama_cpp, name)))
    for module, name in SHORT_CALLS:
        monkeypatch.setattr(module, name, noting(name, getattr(module, name)))
    written: queue.SimpleQueue[FromEngine] = queue.SimpleQueue()
    worker = Worker(config(), load, written.put, lambda code: written.put(LoadFailed(str(code))))
    worker.start()
    while not isinstance(message := written.get(timeout=GUARD), Loaded):
        assert isinstance(message, Loading)
    sampled, prompt = Sampling(typical_p=0.9, ignore_eos=True), "Once upon a time there was a girl. " * 6
    for key in range(1, 9):
        asked = GenerationRequest(id="r", prompts=(prompt,), n=2, max_tokens=20, sampling=sampled)
        worker.receive(Generate(key, asked))
        worker.receive(Ask(key, Inspect()))
        if key % 2:
            worker.receive(Cancel(key))
    finished = 0
    while finished < 8:
        message = written.get(timeout=GUARD)
        if isinstance(message, Step):
            finished += sum(isinstance(event, Finished) for _, event in message.events)
    worker.stop()
    assert callers == {name: {"steps"} for name in (*CONTEXT_CALLS, *(name for _, name in SHORT_CALLS))}
