"""Context shift on real models: equal to direct calls of llama.cpp, and unnoticed by neighbours and later requests."""

from collections.abc import Iterator
from contextlib import ExitStack

import llama_cpp
import numpy as np
import pytest

from engine.config import EngineConfig
from engine.core.sequence import Sequence
from engine.core.window import ContextWindow
from engine.errors import LoadError
from engine.events import Alternative, Released, TokenDetail
from engine.llama.batch import Batch
from engine.llama.context import LlamaContext
from engine.llama.model import LlamaModel
from tests.architectures.engine import ALTERNATIVES, Answer, Engine
from tests.architectures.families import FAMILIES, Memory, quick_for_some
from tests.architectures.models import family_model
from tests.architectures.prompts import prompt

CONTEXT = 256
LONG = 400
SHIFTING = [family.name for family in FAMILIES if family.memory in {Memory.ATTENTION, Memory.WINDOW}]
FIXED = [family.name for family in FAMILIES if family.memory in {Memory.HYBRID, Memory.RECURRENT}]


def config(name: str) -> EngineConfig:
    return EngineConfig(
        model=str(family_model(name)), slots=3, context=CONTEXT, threads=1, prefix_store=2**24, context_shift=True
    )


@pytest.fixture(scope="module", params=quick_for_some(SHIFTING))
def shared(request: pytest.FixtureRequest) -> Iterator[tuple[str, Engine]]:
    with ExitStack() as stack:
        yield request.param, Engine(config(request.param), stack, exact=True)


@pytest.fixture
def engine(shared: tuple[str, Engine]) -> Iterator[Engine]:
    yield shared[1]
    shared[1].drain()
    shared[1].check_idle()
    shared[1].empty()


class Reference:
    """One sequence in a context of its own, computed and shifted by direct calls as in llama-server."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        settings = config(name)
        model = stack.enter_context(LlamaModel(settings, lambda _share: None))
        params = llama_cpp.llama_context_default_params()
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        params.n_ctx = params.n_batch = CONTEXT
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = stack.enter_context(LlamaContext(model, settings, params, purpose="a reference"))
        self.batch = Batch(CONTEXT, model.info.vocabulary)
        self.vocabulary = model.info.vocabulary

    def answer(self, tokens: list[int], count: int, window: ContextWindow) -> Answer:
        pending, cells = tokens, 0
        answer: list[TokenDetail] = []
        memory = llama_cpp.llama_get_memory(self.context.handle)
        for _ in range(count):
            if answer and window.is_full(cells):
                start, gap = window.gap(cells)
                assert llama_cpp.llama_memory_seq_rm(memory, 0, start, start + gap)
                llama_cpp.llama_memory_seq_add(memory, 0, start + gap, cells, -gap)
                cells -= gap
            answer.append(self._next(pending, cells))
            cells += len(pending)
            pending = [answer[-1].id]
        return tuple(answer)

    def _next(self, tokens: list[int], start: int) -> TokenDetail:
        self.batch.clear()
        row = self.batch.add(tokens, seq_id=0, start=start, output=True)
        self.context.decode(self.batch)
        pointer = llama_cpp.llama_get_logits_ith(self.context.handle, row)
        logits = np.ctypeslib.as_array(pointer, (self.vocabulary,)).astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum())
        best = np.argsort(-logprobs)[:ALTERNATIVES]
        top = tuple(Alternative(int(one), b"", float(logprobs[one])) for one in best)
        return TokenDetail(top[0].id, b"", top[0].logprob, top)


@pytest.mark.parametrize(("keep", "discard"), [(0, 0), (10, 30), (-1, 0)])
def test_a_shifted_context_gives_what_llama_cpp_computes(
    shared: tuple[str, Engine], engine: Engine, keep: int, discard: int
) -> None:
    tokens = prompt(1, 60)
    kept = 1 + (len(tokens) if keep < 0 else keep)  # with the token that the model adds at the beginning of texts
    with ExitStack() as stack:
        expected = Reference(shared[0], stack).answer(tokens, LONG, ContextWindow(CONTEXT, kept, discard))
    key = engine.add(tokens, LONG, keep=keep, discard=discard)
    engine.drain()
    engine.check(engine.answer(key), expected)
    assert engine.finished(key).discarded >= LONG + len(tokens) - CONTEXT


def test_neighbours_of_a_shifted_context_do_not_notice(engine: Engine) -> None:
    prompts = [prompt(10 + seed, 40) for seed in range(2)]
    expected = [engine.uncached(one, 150) for one in prompts]
    shifted = engine.uncached(prompt(12, 200), 150)
    keys = [engine.add(one, 150) for one in (prompts[0], prompt(12, 200), prompts[1])]
    engine.drain()
    for key, answer in zip(keys, [expected[0], shifted, expected[1]], strict=True):
        engine.check(engine.answer(key), answer)


def test_a_cancel_after_a_shift_frees_everything(engine: Engine) -> None:
    expected = engine.uncached(prompt(20, 30), 10)
    key = engine.add(prompt(21, 200), LONG)
    for _ in range(80):
        engine.step()
    engine.cancel(key)
    engine.drain()
    end = engine.events[key][-1]
    assert isinstance(end, Released)
    assert end.freed < CONTEXT - 50
    engine.check_idle()
    engine.check(engine.run(prompt(20, 30), 10), expected)


def step_until_full(engine: Engine) -> Sequence:
    """Step until the only sequence has a full slot."""
    while True:
        engine.step()
        [sequence] = [slot.holder for slot in engine.ledger.slots if slot.holder]
        if sequence.full:
            return sequence


def test_a_shifted_sequence_may_move_before_its_next_step(engine: Engine) -> None:
    expected = engine.uncached(prompt(30, 240), 60)
    key = engine.add(prompt(30, 240), 60)
    sequence = step_until_full(engine)
    engine.ledger.shift(sequence)
    slots = engine.ledger.slots
    engine.ledger.move(slots[sequence.seq_id], slots[(sequence.seq_id + 1) % len(slots)])
    engine.drain()
    engine.check(engine.answer(key), expected)


def test_an_abort_does_not_reach_a_shift(engine: Engine) -> None:
    expected = engine.uncached(prompt(31, 240), 60)
    key = engine.add(prompt(31, 240), 60)
    step_until_full(engine)
    engine.runner.abort()
    engine.drain()
    engine.check(engine.answer(key), expected)


def test_the_next_request_computes_what_a_shift_has_changed(engine: Engine) -> None:
    tokens = prompt(40, 150)
    first = engine.run(tokens, 200)
    turns = [*tokens[:120], *(token.id for token in first[:60])]
    expected = engine.uncached(turns, 10)
    key = engine.add(turns, 10)
    engine.drain()
    engine.check(engine.answer(key), expected)
    assert engine.finished(key).cached == 0


@pytest.mark.parametrize("name", FIXED)
def test_a_model_with_a_recurrent_state_is_refused(name: str) -> None:
    with ExitStack() as stack, pytest.raises(LoadError, match="cannot shift its context"):
        Engine(config(name), stack, exact=True)
