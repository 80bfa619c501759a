"""A sequence knows its tokens, how many are computed, and how it ends."""

import pytest

from engine.core.fake import END
from engine.core.sequence import Sequence, State
from engine.core.token import Token
from engine.events import Finished, FinishReason, Text
from engine.request import Sampling
from tests.engine.driver import request


def token(text: str) -> Token:
    return Token(ord(text[0]), text.encode(), ends=False)


ENDS = Token(END, b"", ends=True)


def make(limit: int = 10, **fields: object) -> Sequence:
    return Sequence(request("p", **fields), 0, [1, 2, 3], limit)


def test_streams_text_as_it_comes() -> None:
    sequence = make(stream=True)
    assert sequence.accept(token("a")) == Text(0, "a")
    assert sequence.accept(token("b")) == Text(0, "b")
    assert sequence.accept(ENDS) == Finished(0, "", FinishReason.STOP, 3, 0)


def test_gives_all_text_at_the_end_where_it_does_not_stream() -> None:
    sequence = make()
    assert sequence.accept(token("a")) is None
    assert sequence.accept(token("b")) is None
    assert sequence.accept(ENDS) == Finished(0, "ab", FinishReason.STOP, 3, 0)


def test_the_limit_ends_it_with_length() -> None:
    sequence = make(limit=2, stream=True)
    sequence.accept(token("a"))
    assert sequence.accept(token("b")) == Finished(0, "b", FinishReason.LENGTH, 2, 0)


def test_a_stop_string_over_token_borders_ends_it_and_counts_every_token() -> None:
    sequence = make(stop=("bcd",), stream=True)
    assert sequence.accept(token("a")) == Text(0, "a")
    assert sequence.accept(token("b")) is None
    assert sequence.accept(token("c")) is None
    assert sequence.accept(token("d")) == Finished(0, "", FinishReason.STOP, 4, 0)


def test_what_was_held_back_comes_with_the_end() -> None:
    sequence = make(limit=2, stop=("bcd",), stream=True)
    sequence.accept(token("a"))
    assert sequence.accept(token("b")) == Finished(0, "b", FinishReason.LENGTH, 2, 0)


def test_ignore_eos_goes_on_to_the_limit() -> None:
    sequence = make(limit=2, sampling=Sampling(ignore_eos=True))
    assert sequence.accept(ENDS) is None
    assert sequence.accept(ENDS) == Finished(0, "", FinishReason.LENGTH, 2, 0)


@pytest.mark.parametrize(("seed", "expected"), [(None, None), (0, 3), (2**32 - 1, 2), (2**40 + 5, 8)])
def test_choices_have_seeds_of_their_own(seed: int | None, expected: int | None) -> None:
    sequence = Sequence(request("p", sampling=Sampling(seed=seed)), 3, [1], 4)
    assert sequence.seed == expected


def test_the_choices_of_a_prompt_share_it_until_they_differ() -> None:
    prompt = [1, 2, 3]
    first, second = (Sequence(request("p"), choice, prompt, 4) for choice in range(2))
    assert first.tokens is second.tokens
    first.accept(token("a"))
    assert (first.tokens, second.tokens, prompt) == ([1, 2, 3, 97], [1, 2, 3], [1, 2, 3])


def test_states_change_only_by_the_table() -> None:
    sequence = make()
    sequence.enter(State.RUNNING)
    sequence.enter(State.WAITING)
    sequence.enter(State.ENDED)
    with pytest.raises(RuntimeError, match="from ended to running"):
        sequence.enter(State.RUNNING)
