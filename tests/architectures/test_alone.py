"""Architectures that llama.cpp computes right only alone are served in one slot, and refused in several."""

from contextlib import ExitStack

import pytest

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama import metadata
from tests.architectures.engine import Answer, Engine
from tests.architectures.families import ALONE, quick_for_some
from tests.architectures.models import family_model
from tests.architectures.prompts import prompt
from tests.repeat import thorough

NAMES = [family.name for family in ALONE]


def config(name: str, slots: int) -> EngineConfig:
    return EngineConfig(model=str(family_model(name)), slots=slots, context=256, threads=1, step_target_ms=0.001)


@pytest.mark.parametrize("name", quick_for_some(NAMES))
def test_requests_of_one_slot_are_answered_as_without_a_cache(name: str) -> None:
    with ExitStack() as stack:
        engine = Engine(config(name, 1), stack, exact=True)
        first = prompt(1, 90)
        answer = engine.uncached(first, 8)
        follow_up = [*first, *(token.id for token in answer), *prompt(2, 30)]
        expected = [answer, engine.uncached(follow_up, 8), engine.uncached(prompt(3, 60), 8)]
        keys = [engine.add(one, 8) for one in (first, follow_up, prompt(3, 60))]
        engine.drain()
        for key, one in zip(keys, expected, strict=True):
            engine.check(engine.answer(key), one)
        engine.check_idle()


@pytest.mark.parametrize("name", quick_for_some(NAMES))
def test_several_slots_are_refused(name: str) -> None:
    with ExitStack() as stack, pytest.raises(LoadError, match=r"with --slots 2: .*: choose --slots 1"):
        Engine(config(name, 2), stack, exact=True)


@thorough
def test_llama_cpp_still_computes_two_sequences_of_arwkv_7_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, the refusal of the architecture may be needed no longer."""
    monkeypatch.setattr(metadata, "_RIGHT_ALONE", frozenset())
    with ExitStack() as stack:
        engine = Engine(config("arwkv-7", 2), stack, exact=False)
        expected = engine.uncached(prompt(10, 90), 8)
        key = engine.add(prompt(10, 90), 8, n=2)
        engine.drain()
        with pytest.raises(AssertionError):
            check_choices(engine, key, expected)


def check_choices(engine: Engine, key: int, expected: Answer) -> None:
    for choice in range(2):
        engine.check(engine.answer(key, choice), expected)
