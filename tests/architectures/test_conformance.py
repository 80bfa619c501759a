"""Conformance of every architecture to plain attention: the whole engine on a model of each family."""

from collections.abc import Iterator
from contextlib import ExitStack
from operator import itemgetter

import pytest

from engine.config import EngineConfig
from engine.core.sequence import Sequence
from engine.core.step import Chunk, StepPlan
from engine.core.token import Token
from engine.request import GenerationRequest
from tests.architectures.engine import GREEDY, Answer, Engine, aborting
from tests.architectures.families import CONTEXT, FAMILIES, quick_for_some
from tests.architectures.models import family_model
from tests.architectures.prompts import prompt

SLOTS = 4
STORE = 2**26
AS_BY_DEFAULT = ("plain", "gemma-3", "qwen-3.5", "lfm-2")
"""Families that are also tested with flash attention and cells in half precision."""
WINDOWS = ("gemma-2", "gemma-3")
"""Families that are also tested where slots share their cells."""
CASES = [
    *((family.name, "") for family in FAMILIES),
    *((name, "by-default") for name in AS_BY_DEFAULT),
    *((name, "unified") for name in WINDOWS),
]


@pytest.fixture(
    scope="module", params=quick_for_some(CASES, itemgetter(0)), ids=lambda case: "-".join(filter(None, case))
)
def shared(request: pytest.FixtureRequest) -> Iterator[Engine]:
    name, kind = request.param
    config = EngineConfig(
        model=str(family_model(name)),
        slots=SLOTS,
        context=CONTEXT // 2,
        kv_unified=kind == "unified",
        threads=1,
        prefix_store=STORE,
        step_target_ms=0.001,  # the smallest chunks, however fast this machine is
    )
    with ExitStack() as stack:
        yield Engine(config, stack, exact=kind != "by-default")


@pytest.fixture
def engine(shared: Engine) -> Iterator[Engine]:
    yield shared
    shared.drain()
    shared.check_idle()
    shared.empty()


def ids(answer: Answer) -> list[int]:
    return [token.id for token in answer]


def check_all(engine: Engine, keys: list[int], expected: list[Answer]) -> None:
    for key, answer in zip(keys, expected, strict=True):
        engine.check(engine.answer(key), answer)


def step_until_decoding(engine: Engine, count: int) -> None:
    """Step until so many sequences decode."""
    while sum(slot.state == "decode" for slot in engine.scheduler.inspect()) < count:
        engine.step()


def test_sequences_in_parallel_get_the_tokens_that_they_get_alone(engine: Engine) -> None:
    prompts = [prompt(seed, 20 + 35 * seed) for seed in range(SLOTS + 2)]
    alone = [engine.uncached(one, 12) for one in prompts]
    keys = [engine.add(one, 12) for one in prompts]
    engine.drain()
    check_all(engine, keys, alone)


def test_choices_of_one_prompt_are_alike(engine: Engine) -> None:
    expected = engine.uncached(prompt(10, 90), 8)
    key = engine.add(prompt(10, 90), 8, n=SLOTS + 1)
    engine.drain()
    for choice in range(SLOTS + 1):
        engine.check(engine.answer(key, choice), expected)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_cancel_in_the_prompt_leaves_its_neighbours_and_its_slot_right(engine: Engine, steps: int) -> None:
    neighbours = [prompt(20 + seed, 30) for seed in range(2)]
    expected = [engine.uncached(one, 24) for one in neighbours]
    after = engine.uncached(prompt(23, 50), 12)
    keys = [engine.add(one, 24) for one in neighbours]
    step_until_decoding(engine, 2)
    long = engine.add(prompt(22, 700), 5)
    for _ in range(steps):
        engine.step()
    assert any(slot.state == "prefill" for slot in engine.scheduler.inspect())
    engine.cancel(long)
    keys.append(engine.add(prompt(23, 50), 12))
    engine.drain()
    check_all(engine, keys, [*expected, after])


def test_a_cancel_between_two_tokens_leaves_its_neighbours_and_its_slot_right(engine: Engine) -> None:
    prompts = [prompt(30 + seed, 40 + 10 * seed) for seed in range(3)]
    expected = [engine.uncached(one, 20) for one in prompts]
    after = engine.uncached(prompt(33, 45), 12)
    keys = [engine.add(one, 20) for one in prompts]
    step_until_decoding(engine, 3)
    engine.step()
    engine.cancel(keys.pop(1))
    keys.append(engine.add(prompt(33, 45), 12))
    engine.drain()
    check_all(engine, keys, [expected[0], expected[2], after])


def test_sequences_go_on_in_other_slots(engine: Engine) -> None:
    prompts = [prompt(35 + seed, 40 + 10 * seed) for seed in range(2)]
    expected = [engine.uncached(one, 12) for one in prompts]
    keys = [engine.add(one, 12) for one in prompts]
    step_until_decoding(engine, 2)
    slots = engine.ledger.slots
    engine.ledger.move(slots[0], slots[1])
    engine.step()
    engine.ledger.move(slots[1], slots[3])
    engine.drain()
    check_all(engine, keys, expected)


@pytest.mark.parametrize("read", [1, 40, 150])
def test_an_aborted_step_leaves_its_neighbours_and_its_slot_right(engine: Engine, read: int) -> None:
    expected = [engine.uncached(prompt(40, 70), 12), engine.uncached(prompt(41, 300), 6)]
    resident = engine.run(prompt(40, 70), 12)
    long = engine.add(prompt(42, 700), 5)
    engine.abort_step(long, read if engine.exact else min(read, 60))  # one batch may take the whole step
    keys = [engine.add(prompt(40, 70), 12), engine.add(prompt(41, 300), 6)]
    engine.drain()
    engine.check(resident, expected[0])
    check_all(engine, keys, expected)


def test_a_cancelled_step_leaves_the_states_right_that_it_moves(engine: Engine) -> None:
    expected = ids(engine.uncached(prompt(47, 40), 2))
    request = GenerationRequest(id="r", prompts=((1,),), sampling=GREEDY)
    rows: dict[int, Sequence] = {}
    for slot in (0, 2, 1):  # the state of slot 2 is between those of the others
        rows[slot] = Sequence(request, 0, prompt(45 + slot, 40), 4)
        rows[slot].seq_id = slot
        compute(engine, [rows[slot]])
    with aborting(engine.runner, 1):
        engine.runner.run(StepPlan(tuple(Chunk(rows[slot], 1, sample=True) for slot in (0, 1)), decode=True))
    compute(engine, [rows[2]])
    assert rows[2].tokens[40:] == expected
    for row in rows.values():
        engine.runner.close(row)


def compute(engine: Engine, rows: list[Sequence]) -> None:
    """Compute all known tokens of sequences, and draw a token for each."""
    chunks = tuple(Chunk(row, row.pending, sample=True) for row in rows)
    result = engine.runner.run(StepPlan(chunks, decode=True))
    for row, [drawn] in zip(rows, result.draws, strict=True):
        assert isinstance(drawn, Token)
        row.advance(row.pending, 0.0)
        row.append(drawn)
        row.output.accept(drawn, row.generated)


def test_the_next_turn_of_a_conversation_is_answered_as_without_a_cache(engine: Engine) -> None:
    turns = new = prompt(50, 150)
    for seed in range(51, 54):
        expected = engine.uncached(turns, 10)
        with engine.counted() as computed:
            engine.check(engine.run(turns, 10), expected)
        reused = len(turns) - computed()
        assert reused >= len(turns) - len(new) - 1
        new = prompt(seed, 40)
        turns = [*turns, *ids(expected), *new]


def test_an_edited_message_is_answered_as_without_a_cache(engine: Engine) -> None:
    first = prompt(60, 200)
    engine.run(first, 8)
    for cut in (199, 150, 20):
        edited = [*first[:cut], *prompt(61 + cut, 30)]
        expected = engine.uncached(edited, 8)
        engine.check(engine.run(edited, 8), expected)
    engine.check(engine.run(first, 8), engine.uncached(first, 8))


def test_requests_with_a_common_beginning_are_answered_as_without_a_cache(engine: Engine) -> None:
    system = prompt(70, 180)
    prompts = [[*system, *prompt(71 + seed, 25)] for seed in range(SLOTS)]
    expected = [engine.uncached(one, 8) for one in prompts]
    keys = [engine.add(one, 8) for one in prompts]
    engine.drain()
    check_all(engine, keys, expected)


def test_draft_tokens_do_not_change_the_answer(engine: Engine) -> None:
    prompts = [[*prompt(80 + seed, 20)] * 4 for seed in range(2)]
    expected = [engine.uncached(one, 40) for one in prompts]
    prediction = "".join(token.piece.decode() for token in expected[0])
    keys = []
    for one in prompts:
        keys.append(engine.add(one, 40, speculative=True, prediction=prediction))
        if engine.loaded.model.traits.drops_steps:
            engine.drain()
    engine.drain()
    check_all(engine, keys, expected)
    assert (sum(engine.finished(key).drafted for key in keys) > 0) == (engine.max_draft > 0)


def test_a_prefix_from_host_memory_is_as_good_as_a_computed_one(engine: Engine) -> None:
    first = prompt(90, 200)
    answer = engine.run(first, 8)
    before = engine.metrics
    for seed in range(91, 91 + SLOTS):  # which take every slot
        engine.run(prompt(seed, 200), 8)
    assert engine.metrics.saved_tokens > before.saved_tokens
    follow_up = [*first, *ids(answer), *prompt(96, 30)]
    expected = engine.uncached(follow_up, 8)
    key = engine.add(follow_up, 8)
    engine.drain()
    engine.check(engine.answer(key), expected)
    assert engine.metrics.restored_tokens > before.restored_tokens
    assert engine.finished(key).cached > 150
