"""The work of a step depends only on its rows: not on waiting or past requests, nor on the length of texts.

Counted, not timed, in all that a step does besides the model's pass: plan, news, metrics, frame.
"""

from collections.abc import Iterable
from itertools import count, islice
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.core.fair.turns import MOST_GONE
from engine.core.kv.cell_changes import Copy, Forget, Removal, Restore, Rewind, Save, Shift, Swap
from engine.core.kv.prefix_file import Discard, Fetch, Spill, SpillSlot
from engine.core.kv.prefix_store import PrefixStore
from engine.core.sequence import Sequence
from engine.core.step import Chunk, Draw, Outcome, StepPlan, StepResult
from engine.core.token import Token
from engine.core.turns import Turns
from engine.events import Event
from engine.info import EngineMetrics
from engine.protocol.codec import encode
from engine.protocol.messages import Step
from engine.request import EmbeddingRequest, GenerationRequest, Request
from engine.testing.fake_embedder import FakeEmbedder
from engine.testing.fake_model import FakeModel
from engine.worker.loaded import LoadedModel
from engine.worker.loop import StepLoop
from engine.worker.progress import Progress
from tests.engine.driver import AtOnce, at_once
from tests.engine.work import Work, assert_same, blocks, work_of
from tests.repeat import TIMES, thorough

SLOTS, CONTEXT, QUEUE = 32, 4096, 1200
FEW, MANY = 20, 1000
SHORT, LONG = 16, 3000
STORED = 2
"""Prefixes that fit into the store. It is full, so that a lookup compares as many after few requests."""
KINDS = ["generations", "embeddings"]
CLIENTS = ["one client", "many clients"]
FORMS: dict[str, dict[str, Any]] = {
    "streamed": {},
    "whole": {"stream": False},
    "with stop strings": {"stop": ("b", "aab")},
    "with tokens": {"token_ids": True},
    "speculative": {"repeats": True, "speculative": True},
    "never speculative": {"speculative": False},
}


class NoCells:
    """A KV cache in which no change costs anything."""

    def remove(self, removal: Removal) -> None: ...
    def shift(self, shift: Shift) -> None: ...
    def copy(self, copy: Copy) -> None: ...
    def swap(self, swap: Swap) -> None: ...
    def save(self, _save: Save) -> bool:
        return True

    def restore(self, restore: Restore) -> None: ...
    def rewind(self, rewind: Rewind) -> None: ...
    def forget(self, forget: Forget) -> None: ...
    def read(self, _seq_id: int) -> bytes:
        return b""

    def write(self, _seq_id: int, _cells: bytes, _tokens: int) -> bool:
        return True

    def spill(self, spill: Spill) -> None: ...
    def spill_slot(self, spill: SpillSlot) -> None: ...
    def fetch(self, fetch: Fetch) -> None: ...
    def discard(self, discard: Discard) -> None: ...


class Parrot:
    """A runner with passes that cost by their rows only; the fake one looks at every cell.

    It draws one token for ever, as every draft has it, or never the same one twice, so that there is no draft.
    """

    def __init__(self, *, repeats: bool) -> None:
        self.cache = NoCells()
        self._repeats = repeats
        self._ids = count(1000)

    def run(self, plan: StepPlan) -> StepResult:
        draws = tuple(tuple(self._draws(chunk)) for chunk in plan.chunks if chunk.sample)
        return StepResult(Outcome.DONE, draws, 1.0)

    def _draws(self, chunk: Chunk) -> Iterable[Draw]:
        if not self._repeats:
            return [Token(next(self._ids), b"a", ends=False)]
        return [Token(7, b"a", ends=False) for _ in [*chunk.draft, None]]

    def abort(self) -> None: ...
    def arm(self) -> None: ...
    def close(self, sequence: Sequence) -> None: ...


class Steps:
    """The engine's step loop, one step at a time."""

    def __init__(self, slots: int = SLOTS, *, repeats: bool = False) -> None:
        self.model = FakeModel(slots=slots, context=CONTEXT)
        embedder = FakeEmbedder()
        self.runner = Parrot(repeats=repeats)
        store = PrefixStore(STORED, lambda _tokens: 1)
        loaded = LoadedModel(self.model, self.runner, embedder.limits, lambda _cells: embedder, store)
        self._lanes = loaded.lanes(EngineConfig(model="", step_target_ms=100, queue_limit=QUEUE))
        self.scheduler = self._lanes[GenerationRequest].scheduler
        self.loop = StepLoop(self._lanes.values(), self._publish, Progress(), AtOnce())
        self._keys = count(1)

    def generate(self, prompt: tuple[int, ...] = (1, 2, 3), **fields: Any) -> int:
        return self._add(GenerationRequest(id="r", prompts=(prompt,), **fields))

    def embed(self, client: str = "") -> int:
        return self._add(EmbeddingRequest(id="r", inputs=((1, 2, 3),), client=client))

    def _add(self, request: Request) -> int:
        key, lane = next(self._keys), self._lanes[type(request)]
        self.loop.check_room(lane, request.client)
        self.loop.add(lane, at_once(lane.admit(key, request)), lambda: None)
        return key

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.loop._step()

    def serve(self, requests: int) -> None:
        """Serve different requests of one token each, one per slot at a time; every tenth has a long prompt.

        Without metrics and frames: they keep no state.
        """
        slots, turns = self.model.info.slots, Turns(1)
        for first in range(0, requests, slots):
            for at in range(first, first + slots):
                stays = at % 10 == 0
                self.generate((*at.to_bytes(3),) * (60 if stays else 1), max_tokens=1, cache_prompt=stays)
            while self.scheduler.busy:
                [turn] = turns.next([self.scheduler.demand()])
                plan = self.scheduler.plan(turn, contended=False).plan
                if plan is not None:
                    self.scheduler.apply(plan, self.runner.run(plan))

    def _publish(self, news: Iterable[tuple[int, Event]], metrics: EngineMetrics) -> None:
        encode(Step(tuple(news), metrics))


def decoding(rows: int, *, slots: int = SLOTS, prompt: int = SHORT, repeats: bool = False, **fields: Any) -> Steps:
    """Start so many streams that each draw a token per step."""
    steps = Steps(slots, repeats=repeats)
    for row in range(rows):
        steps.generate((row,) * prompt, **{"stream": True, "cache_prompt": False, **fields})
    while sum(slot.state == "decode" for slot in steps.scheduler.inspect()) < rows:
        steps.step()
    return steps


def crowd(steps: Steps, kind: str, waiting: int, clients: str = "one client") -> list[int]:
    names = [str(at) if clients == "many clients" else "" for at in range(waiting)]
    return [steps.generate(client=name) if kind == "generations" else steps.embed(name) for name in names]


def test_the_work_of_a_step_grows_with_its_rows() -> None:
    few, some, many = (work_of(decoding(rows).step).instructions for rows in (8, 16, 32))
    assert many - some == pytest.approx(2 * (some - few), rel=0.02)
    assert many < 4 * few


@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_waiting_requests_add_no_work_to_a_step(kind: str, clients: str) -> None:
    def work(waiting: int) -> Work:
        steps = decoding(1, slots=1)
        crowd(steps, kind, waiting, clients)
        steps.step(2)
        return work_of(lambda: steps.step(2), times=2)  # generations and embeddings take turns

    assert_same(work(FEW), work(MANY))


@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_waiting_requests_add_no_work_to_an_arrival_or_a_cancel(kind: str, clients: str) -> None:
    def work(waiting: int) -> Work:
        steps = decoding(1, slots=1)
        crowd(steps, kind, waiting - 1, clients)
        return work_of(lambda: steps.loop.cancel(*crowd(steps, kind, 1)))

    assert_same(work(FEW), work(MANY))


@thorough
@pytest.mark.parametrize("clients", CLIENTS)
def test_waiting_requests_add_no_work_when_a_slot_changes_hands(clients: str) -> None:
    def work(waiting: int) -> Work:
        steps = decoding(3, slots=4)
        turns = iter(crowd(steps, "generations", waiting, clients))
        steps.step(4)

        def change_hands() -> None:
            steps.loop.cancel(next(turns))
            steps.step(4)

        return work_of(change_hands)

    assert_same(work(FEW), work(MANY))


@pytest.mark.parametrize("form", FORMS)
def test_a_long_prompt_adds_no_work_to_a_decode_step(form: str) -> None:
    def work(prompt: int) -> Work:
        steps = decoding(1, slots=1, prompt=prompt, **FORMS[form])
        steps.step(8)
        return work_of(steps.step)

    assert_same(work(SHORT), work(LONG))


@pytest.mark.parametrize("form", FORMS)
def test_a_long_answer_adds_no_work_to_a_decode_step(form: str) -> None:
    steps = decoding(1, slots=1, **FORMS[form])
    steps.step(8)
    early = work_of(steps.step)
    steps.step(100 if form == "speculative" else 1000)
    assert_same(early, work_of(steps.step))


def test_a_long_prompt_adds_no_work_to_a_prompt_pass() -> None:
    def work(prompt: int) -> Work:
        steps = decoding(1, slots=2)
        steps.generate((200,) * prompt)
        steps.step(2)
        return work_of(lambda: steps.step(2))

    assert_same(work(LONG // 4), work(LONG))


@thorough
def test_past_requests_leave_no_work_or_memory_behind() -> None:
    steps = Steps(4)
    firsts = count(100)

    def serve_four() -> None:
        for first in islice(firsts, 4):
            steps.generate((first,) * 40, max_tokens=4, stream=True)
        while steps.scheduler.busy:
            steps.step()

    def work() -> Work:
        serve_four()  # so that each count starts from the same cache
        return work_of(serve_four)

    steps.serve(1_000)  # tables of the engine and of Python have grown to their size
    early = work()
    left = []
    for _ in range(3):  # a leak is in each; what else grows in the process, such as tables of Python, is not
        kept = blocks()
        steps.serve(2_000 * TIMES)
        left.append(blocks() - kept)
    assert min(left) < 20 * TIMES, "one of a hundred requests left something"
    assert_same(early, work())


@thorough
def test_past_clients_leave_a_bounded_memory_behind() -> None:
    steps, clients = decoding(1, slots=2), count()
    steps.generate(client="waits", n=2)

    def come_and_go(times: int) -> None:
        for client in islice(clients, times):
            key = steps.generate(client=str(client), max_tokens=1, cache_prompt=False)
            while key in steps.scheduler:
                steps.step()

    come_and_go(2 * MOST_GONE)
    while steps.scheduler.busy:  # the streams keep each of their tokens
        steps.step()
    kept = blocks()
    come_and_go(1000)
    assert blocks() - kept < 200
