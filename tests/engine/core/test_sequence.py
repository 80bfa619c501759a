"""A sequence: its tokens, the number of computed ones, and its end."""

import pytest

from engine.core.output import transcript
from engine.core.output.choice import End
from engine.core.output.echo import Echo
from engine.core.sequence import Sequence, State
from engine.core.token import Token
from engine.core.window import ContextWindow
from engine.events import Alternative, Finished, FinishReason, Text, TokenDetail
from engine.request import Sampling
from engine.testing.fake_model import END
from tests.engine.driver import request


def token(text: str) -> Token:
    return Token(ord(text[0]), text.encode(), ends=False)


ENDS = Token(END, b"", ends=True)


def make(limit: int = 10, **fields: object) -> Sequence:
    return Sequence(request("p", **fields), 0, [1, 2, 3], limit)


def accept(sequence: Sequence, drawn: Token) -> Text | Finished | None:
    sequence.append(drawn)
    event = sequence.output.accept(drawn, sequence.generated)
    return sequence.finished(event) if isinstance(event, End) else event


def test_a_streamed_choice_sends_text_as_it_comes() -> None:
    sequence = make(stream=True)
    assert accept(sequence, token("a")) == Text(0, "a")
    assert accept(sequence, token("b")) == Text(0, "b")
    assert accept(sequence, ENDS) == Finished(0, "", FinishReason.STOP, 3, 0)


def test_a_choice_that_is_not_streamed_sends_all_text_at_its_end() -> None:
    sequence = make()
    assert accept(sequence, token("a")) is None
    assert accept(sequence, token("b")) is None
    assert accept(sequence, ENDS) == Finished(0, "ab", FinishReason.STOP, 3, 0)


def test_many_details_are_sent_before_the_end_of_a_choice_that_is_not_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "DETAILS_AT_ONCE", 6)
    top = (Alternative(98, b"b", -0.1), Alternative(97, b"a", -2.5))
    drawn = Token(97, b"a", ends=False, logprob=-2.5, top=top)
    detail = TokenDetail(97, b"a", -2.5, top)
    sequence = make(limit=5, logprobs=2)
    events = [accept(sequence, drawn) for _ in range(5)]
    two = Text(0, "aa", (detail, detail))
    assert events == [None, two, None, two, Finished(0, "a", FinishReason.LENGTH, 5, 0, (detail,))]


def test_max_tokens_ends_a_choice_with_the_reason_length() -> None:
    sequence = make(limit=2, stream=True)
    accept(sequence, token("a"))
    assert accept(sequence, token("b")) == Finished(0, "b", FinishReason.LENGTH, 2, 0)


def test_a_stop_string_over_token_borders_ends_a_choice_and_counts_every_token() -> None:
    sequence = make(stop=("bcd",), stream=True)
    assert accept(sequence, token("a")) == Text(0, "a")
    assert accept(sequence, token("b")) is None
    assert accept(sequence, token("c")) is None
    assert accept(sequence, token("d")) == Finished(0, "", FinishReason.STOP, 4, 0, stop="bcd")


def test_text_held_back_is_sent_with_the_end_of_a_choice() -> None:
    sequence = make(limit=2, stop=("bcd",), stream=True)
    accept(sequence, token("a"))
    assert accept(sequence, token("b")) == Finished(0, "b", FinishReason.LENGTH, 2, 0)


def test_ignore_eos_goes_on_to_the_limit() -> None:
    sequence = make(limit=2, sampling=Sampling(ignore_eos=True))
    assert accept(sequence, ENDS) is None
    assert accept(sequence, ENDS) == Finished(0, "", FinishReason.LENGTH, 2, 0)


def test_a_stop_token_ends_a_choice_and_is_named_but_not_part_of_it() -> None:
    sequence = make(stop_tokens=(ord("b"),), token_ids=True, sampling=Sampling(ignore_eos=True))
    accept(sequence, token("a"))
    accept(sequence, ENDS)
    details = (TokenDetail(97, b"a"), TokenDetail(END, b""))
    last = TokenDetail(98, b"b")
    assert accept(sequence, token("b")) == Finished(0, "a", FinishReason.STOP, 3, 0, details, ord("b"), last=last)


def test_an_end_token_is_neither_part_of_the_text_nor_named_as_its_stop() -> None:
    sequence = make(token_ids=True, show_special=True)
    accept(sequence, token("a"))
    named, details = Token(END, b"<end>", ends=True), (TokenDetail(97, b"a"),)
    last = TokenDetail(END, b"<end>")
    assert accept(sequence, named) == Finished(0, "a", FinishReason.STOP, 2, 0, details, last=last)


def test_an_end_token_that_is_a_stop_token_too_is_named() -> None:
    assert accept(make(stop_tokens=(END,)), ENDS) == Finished(0, "", FinishReason.STOP, 1, 0, stop=END)


def test_a_choice_does_not_end_before_min_tokens() -> None:
    sequence = make(stop=("a",), stop_tokens=(ord("b"),), sampling=Sampling(min_tokens=3))
    for early in (token("a"), token("b"), ENDS):
        assert accept(sequence, early) is None
    assert accept(sequence, token("a")) == Finished(0, "ab", FinishReason.STOP, 4, 0, stop="a")


def test_max_tokens_ends_a_choice_before_min_tokens() -> None:
    sequence = make(limit=1, sampling=Sampling(min_tokens=3))
    assert accept(sequence, ENDS) == Finished(0, "", FinishReason.LENGTH, 1, 0)


def test_an_end_that_a_grammar_forces_comes_even_before_min_tokens() -> None:
    sampling = Sampling(min_tokens=9, ignore_eos=True)
    sequence = Sequence(request("p", sampling=sampling), 0, [1], 10, grammar=b"compiled")
    assert accept(sequence, ENDS) == Finished(0, "", FinishReason.STOP, 1, 0)


def test_details_carry_the_token_ids_and_logprobs_of_the_draw() -> None:
    top = (Alternative(98, b"b", -0.1), Alternative(97, b"a", -2.5))
    sequence = make(stream=True, logprobs=2)
    drawn = Token(97, b"a", ends=False, logprob=-2.5, top=top)
    assert accept(sequence, drawn) == Text(0, "a", (TokenDetail(97, b"a", -2.5, top),))


def test_the_text_begins_with_the_prompt_and_its_tokens() -> None:
    echo = Echo([1, 2, 3], b"pro", [b"p", b"r", b"o"], scored=False)
    sequence = Sequence(request("p", stream=True, token_ids=True, echo=True), 0, [1, 2, 3], 2, echo=echo)
    prompt = (TokenDetail(1, b"p"), TokenDetail(2, b"r"), TokenDetail(3, b"o"))
    assert accept(sequence, token("m")) == Text(0, "prom", (*prompt, TokenDetail(109, b"m")))
    assert accept(sequence, token("p")) == Finished(0, "p", FinishReason.LENGTH, 2, 0, (TokenDetail(112, b"p"),))


def test_a_choice_without_a_draw_has_only_its_prompt() -> None:
    echo = Echo([1, 2, 3], b"pro", [], scored=False)
    sequence = Sequence(request("p", stream=True, echo=True), 0, [1, 2, 3], 0, echo=echo)
    assert sequence.finished(sequence.output.complete()) == Finished(0, "pro", FinishReason.LENGTH, 0, 0)


def test_seconds_of_a_choice_are_those_of_its_prompt_and_decode_passes() -> None:
    sequence = make(limit=3)
    for count, seconds in ((2, 0.5), (1, 0.25)):
        sequence.advance(count, seconds)
    for seconds in (4.0, 8.0):
        accept(sequence, token("a"))
        sequence.advance(1, seconds)
    finished = accept(sequence, token("a"))
    assert isinstance(finished, Finished)
    assert (finished.prompt_seconds, finished.decode_seconds) == (0.75, 12.0)


@pytest.mark.parametrize(("seed", "expected"), [(None, None), (0, 3), (2**32 - 1, 2), (2**40 + 5, 8)])
def test_each_choice_has_its_own_seed(seed: int | None, expected: int | None) -> None:
    sequence = Sequence(request("p", sampling=Sampling(seed=seed)), 3, [1], 4)
    assert sequence.seed == expected


def test_the_choices_of_a_prompt_share_it_until_they_differ() -> None:
    prompt = [1, 2, 3]
    first, second = (Sequence(request("p"), choice, prompt, 4) for choice in range(2))
    assert first.tokens is second.tokens
    accept(first, token("a"))
    assert (first.tokens, second.tokens, prompt) == ([1, 2, 3, 97], [1, 2, 3], [1, 2, 3])


@pytest.mark.parametrize(
    ("prompt", "keep", "left"), [(6, 0, 2), (6, 2, 2), (6, 5, 5), (3, 0, 0), (3, 2, 2), (12, 3, 8)]
)
def test_of_a_prompt_that_is_computed_again_only_what_was_not_discarded_counts(
    prompt: int, keep: int, left: int
) -> None:
    sequence = Sequence(request("p"), 0, list(range(prompt)), 100, window=ContextWindow(16, keep, 4))
    for _ in range(15 - prompt):
        accept(sequence, token("a"))
    sequence.begin_at(15 - 1)
    sequence.discard()
    sequence.begin_at(0)
    assert sequence.unread == left
    assert sequence.advance(sequence.pending, 1.0) == left


def test_states_change_only_by_the_table() -> None:
    sequence = make()
    sequence.enter(State.RUNNING)
    sequence.enter(State.WAITING)
    sequence.enter(State.ENDED)
    with pytest.raises(RuntimeError, match="from ended to running"):
        sequence.enter(State.RUNNING)
