"""Draft tokens where cells can be dropped only right after their step: the answers are those without them."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pytest

from engine.config import EngineConfig
from engine.core.drafts import drafter
from engine.core.drafts.drafter import NgramDrafter
from engine.core.drafts.speculation import LENGTHS
from engine.llama.memory.contexts import Contexts
from tests.architectures.engine import Answer, Engine
from tests.architectures.families import CONTEXT, FAMILIES, Memory
from tests.architectures.models import family_model
from tests.architectures.prompts import prompt
from tests.random_model import SPECIAL, VOCABULARY
from tests.repeat import thorough

SLOTS = 4
TOKENS = 60
WITH_SNAPSHOTS = {"lfm-2", "qwen-3.5"}
"""Families whose recurrent states llama.cpp can roll back."""
QUICK = {"gemma-3", "lfm-2", "granite-hybrid"}


def cases(names: Iterable[str]) -> pytest.MarkDecorator:
    """Run a test for families."""
    values = [pytest.param(name, marks=() if name in QUICK else thorough) for name in names]
    return pytest.mark.parametrize("shared", values, indirect=True)


WITH_STATE = [family.name for family in FAMILIES if family.memory in (Memory.HYBRID, Memory.RECURRENT)]
beside_others = cases(
    [*sorted(WITH_SNAPSHOTS), *(family.name for family in FAMILIES if family.memory is Memory.WINDOW)]
)
alone = cases(name for name in WITH_STATE if name not in WITH_SNAPSHOTS)
every = cases(family.name for family in FAMILIES if family.memory is not Memory.ATTENTION)


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest) -> Iterator[Engine]:
    config = EngineConfig(
        model=str(family_model(request.param)), slots=SLOTS, context=CONTEXT // 2, threads=1, prefix_store=2**26
    )
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(Contexts, "headroom", lambda *_arguments: -1)
        yield Engine(config, stack, exact=True)


@pytest.fixture
def engine(shared: Engine) -> Iterator[Engine]:
    assert not shared.loaded.model.traits.can_trim
    yield shared
    shared.drain()
    shared.check_idle()
    shared.empty()


class Planted(NgramDrafter):
    """Drafts the known answer to each prompt, with a wrong token at one place."""

    answers: dict[tuple[int, ...], list[int]]
    """By their prompts."""
    wrong: int | None
    """The place, counted from the end if negative; None for no wrong token."""

    def draft(self, tokens: list[int], most: int) -> list[int]:
        super().draft(tokens, most)
        [(begin, answer)] = [item for item in self.answers.items() if tuple(tokens[: len(item[0])]) == item[0]]
        drafted = answer[len(tokens) - len(begin) :][:most]
        if self.wrong is not None and drafted:
            place = self.wrong % len(drafted)
            drafted[place] = SPECIAL + (drafted[place] + 1 - SPECIAL) % (VOCABULARY - SPECIAL)
        self._draft = drafted
        return drafted


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> type[Planted]:
    monkeypatch.setattr(drafter, "NgramDrafter", Planted)
    monkeypatch.setattr(Planted, "answers", {}, raising=False)
    monkeypatch.setattr(Planted, "wrong", None, raising=False)
    return Planted


def ids(answer: Answer) -> list[int]:
    return [token.id for token in answer]


def plant(engine: Engine, planted: type[Planted], prompts: list[list[int]], wrong: int | None) -> list[Answer]:
    """Make drafts of the answers to these prompts, with a wrong token at this place. Return the answers."""
    expected = [engine.uncached(one, TOKENS) for one in prompts]
    planted.answers |= {tuple(one): ids(answer) for one, answer in zip(prompts, expected, strict=True)}
    planted.wrong = wrong
    return expected


def check_all(engine: Engine, keys: list[int], expected: list[Answer]) -> None:
    for key, answer in zip(keys, expected, strict=True):
        engine.check(engine.answer(key), answer)


@alone
@pytest.mark.parametrize("wrong", [None, 0, 1, -1])
def test_a_sequence_goes_back_before_the_step_of_a_rejected_draft(
    engine: Engine, planted: type[Planted], wrong: int | None
) -> None:
    prompts = [prompt(100 + seed, 220 + 7 * seed) for seed in range(2)]
    expected = plant(engine, planted, prompts, wrong=wrong)
    keys = []
    for one in prompts:
        keys.append(engine.add(one, TOKENS, speculative=True))
        engine.drain()
    check_all(engine, keys, expected)
    check_drafts(engine, keys, accepted=wrong != 0)


def check_drafts(engine: Engine, keys: list[int], *, accepted: bool) -> None:
    for key in keys:
        end = engine.finished(key)
        assert end.drafted >= end.accepted
        assert end.drafted > 0
        assert (end.accepted > 0) == accepted


@alone
@pytest.mark.parametrize("cancelled", [False, True])
def test_another_sequence_starts_after_a_rejected_draft_before_its_repeat(
    engine: Engine, planted: type[Planted], cancelled: bool
) -> None:
    prompts = [prompt(110 + seed, 30 + 7 * seed) for seed in range(3)]
    expected = plant(engine, planted, prompts, wrong=1)
    keys = []
    for one in prompts:
        keys.append(engine.add(one, TOKENS, speculative=True))
        engine.plans.clear()
        if len(keys) == 1:
            step_until_drafted(engine)
    if cancelled:
        engine.cancel(keys.pop(0))
        del expected[0]
    engine.drain()
    check_all(engine, keys, expected)


@alone
@pytest.mark.parametrize("read", [1, 40])
def test_a_step_with_draft_tokens_or_their_repeat_may_be_aborted(
    engine: Engine, planted: type[Planted], read: int
) -> None:
    prompts = [prompt(150 + seed, 70) for seed in range(2)]
    expected = plant(engine, planted, prompts, wrong=1)
    for steps in (0, 1):
        key = engine.add(prompts[0], TOKENS, speculative=True)
        engine.plans.clear()
        step_until_drafted(engine)
        for _ in range(steps):
            engine.step()
        engine.abort_step(key, read)
        engine.check(engine.run(prompts[1], TOKENS, speculative=True), expected[1])
    engine.check(engine.run(prompts[0], TOKENS, speculative=True), expected[0])


def step_until_drafted(engine: Engine) -> None:
    """Step until a step had draft tokens, of which it may have rejected some."""
    while not (engine.plans and any(chunk.draft for chunk in engine.plans[-1].chunks)):
        assert engine.scheduler.busy
        engine.step()


@beside_others
@pytest.mark.parametrize("wrong", [None, 0, 1, -1])
def test_draft_tokens_are_rejected_at_any_place(engine: Engine, planted: type[Planted], wrong: int | None) -> None:
    prompts = [prompt(100 + seed, 220 + 7 * seed) for seed in range(2)]  # answers overwrite cells before the windows
    expected = plant(engine, planted, prompts, wrong=wrong)
    keys = [engine.add(one, TOKENS, speculative=True) for one in prompts]
    engine.drain()
    check_all(engine, keys, expected)
    check_drafts(engine, keys, accepted=wrong != 0)
    assert max(len(chunk.draft) for one in engine.plans for chunk in one.chunks) <= engine.max_draft


@beside_others
def test_a_cancel_after_a_rejected_draft_leaves_its_neighbours_and_its_slot_right(
    engine: Engine, planted: type[Planted]
) -> None:
    prompts = [prompt(110 + seed, 30 + 7 * seed) for seed in range(4)]
    expected = plant(engine, planted, prompts, wrong=1)
    keys = [engine.add(one, TOKENS, speculative=True) for one in prompts[:3]]
    for _ in range(3):
        step_until_drafted(engine)
        engine.step()
    engine.cancel(keys.pop(1))
    del expected[1]
    keys.append(engine.add(prompts[3], TOKENS, speculative=True))
    engine.drain()
    check_all(engine, keys, expected)


@beside_others
def test_a_sequence_goes_on_in_another_slot_after_a_rejected_draft(engine: Engine, planted: type[Planted]) -> None:
    prompts = [prompt(120 + seed, 30 + 7 * seed) for seed in range(2)]
    expected = plant(engine, planted, prompts, wrong=-1)
    keys = [engine.add(one, TOKENS, speculative=True) for one in prompts]
    slots = engine.ledger.slots
    for source, target in ((0, 1), (1, 0), (0, 2)):
        engine.plans.clear()
        step_until_drafted(engine)
        engine.ledger.move(slots[source], slots[target])
        engine.step()
    engine.drain()
    check_all(engine, keys, expected)


@beside_others
def test_another_prompt_begins_after_a_rejected_draft(engine: Engine, planted: type[Planted]) -> None:
    prompts = [prompt(130 + seed, 30 + 90 * seed) for seed in range(3)]
    expected = plant(engine, planted, prompts, wrong=0)
    keys = []
    for one in prompts:
        keys.append(engine.add(one, TOKENS, speculative=True))
        engine.plans.clear()
        step_until_drafted(engine)
    engine.drain()
    check_all(engine, keys, expected)


@every
@pytest.mark.parametrize("away", [False, True], ids=["in its slot", "in host memory"])
def test_the_next_turn_goes_on_after_a_rejected_draft(engine: Engine, planted: type[Planted], away: bool) -> None:
    first = prompt(140, 200)
    [expected] = plant(engine, planted, [first], wrong=-1)
    answer = engine.run(first, TOKENS - 2, speculative=True)
    engine.check(answer, expected[: TOKENS - 2])
    for seed in range(141, 141 + SLOTS if away else 141):  # which take every slot
        engine.run(prompt(seed, 200), 8)
    turn = [*first, *ids(answer), *prompt(146, 30)]
    uncached = engine.uncached(turn, 8)
    with engine.counted() as computed:
        engine.check(engine.run(turn, 8), uncached)
    again = LENGTHS[-1] if engine.loaded.model.traits.drops_steps else 0  # the last step goes back with its draft
    if away and engine.runner._model.recurrent:  # it goes on from the checkpoint near the end of the prompt
        again = 8 + TOKENS
    assert computed() <= 31 + again


@every
def test_drafts_are_as_long_as_memory_allows(engine: Engine) -> None:
    assert engine.max_draft == (3 if engine.loaded.model.traits.drops_steps else LENGTHS[-1])
