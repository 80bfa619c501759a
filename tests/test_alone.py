"""The checker of a sequence's answer: it must accept rounding differences, and reject any other."""

from collections.abc import Iterator

import pytest

from tests.alone import Alone, alone

PROMPT = "Once upon a time"
COUNT = 12


@pytest.fixture(scope="module")
def model() -> Iterator[Alone]:
    with alone(512) as opened:
        yield opened


def second_best(model: Alone, at: int) -> tuple[list[int], str]:
    """Return an answer with one second-best token: all tokens before it, and the answer."""
    begin = model.tokens(PROMPT) + model.continuation(PROMPT, at)
    logits = model.logits(begin)
    second = int(logits.argsort()[-2])
    tokens = [*model.continuation(PROMPT, at), second, *model.continuation([*begin, second], COUNT - at - 1)]
    return begin, b"".join(map(model.model.piece, tokens)).decode()


def test_the_best_answer_is_possible(model: Alone) -> None:
    said = model.says(PROMPT, COUNT)
    assert (said.tokens, said.stopped) == (COUNT, False)
    assert model.could_say(PROMPT, said.text, COUNT)
    assert not model.could_say(PROMPT, said.text + "x", COUNT)
    assert not model.could_say(PROMPT, said.text[:-1], COUNT)
    assert not model.could_say(PROMPT, "", COUNT)


@pytest.mark.parametrize("at", [0, 5, COUNT - 1])
def test_a_second_best_token_is_possible_only_within_rounding(
    model: Alone, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    begin, other = second_best(model, at)
    assert not model.could_say(PROMPT, other, COUNT)
    monkeypatch.setattr("tests.alone._FAR", 100.0)
    assert not model.could_say(PROMPT, other, COUNT)
    monkeypatch.setattr(model, "_rounding", lambda tokens, _candidates: 100.0 if tokens == begin else 0.0)
    assert model.could_say(PROMPT, other, COUNT)


def test_rounding_is_small_and_is_there(model: Alone) -> None:
    tokens = model.tokens(PROMPT) + model.continuation(PROMPT, 200)
    best = model.logits(tokens).argsort()[-2:].tolist()
    assert 0 < model._rounding(tokens, best) < 0.5


def test_a_stop_string_ends_an_answer(model: Alone) -> None:
    whole = model.says(PROMPT, COUNT)
    stop = whole.text[9:13]
    said = model.says(PROMPT, COUNT, stop)
    assert (said.text, said.stopped) == (whole.text.partition(stop)[0], True)
    assert said.tokens < COUNT
    assert model.could_say(PROMPT, said.text, COUNT, stop)
    assert not model.could_say(PROMPT, said.text, COUNT)
    assert not model.could_say(PROMPT, said.text[:-1], COUNT, stop)
