"""The limits of a choice by its lines: indentation, and time at a line break."""

import pytest

from engine.core.output.choice import End
from engine.core.output.line_limits import LineLimits
from engine.core.sequence import Sequence
from engine.core.token import Token
from engine.events import Finished, FinishReason, Text
from tests.engine.driver import request


def kept(limits: LineLimits, *texts: str, seconds: float = 0.0) -> list[int | None]:
    return [limits.kept(text, seconds) for text in texts]


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["a", "\n", "  b"], [None, None, None]),
        (["a\n  b\n c"], [7]),
        (["a\n", " ", "\t", "c", "\n", " ", "d"], [None, None, None, None, None, None, 0]),
        (["a\n\n\n  b"], [None]),
        (["  a\nb"], [4]),
    ],
)
def test_a_line_with_too_few_spaces_ends_the_text_before_its_first_character(
    texts: list[str], found: list[int | None]
) -> None:
    assert kept(LineLimits(2, None), *texts) == found


def test_a_line_break_after_the_time_ends_the_text() -> None:
    limits = LineLimits(0, 1.0)
    assert kept(limits, "a\n", seconds=1.0) == [None]
    assert kept(limits, "b", "c\nd", seconds=1.1) == [None, 2]


def accept(sequence: Sequence, *texts: str) -> list[Text | Finished | None]:
    events: list[Text | Finished | None] = []
    for text in texts:
        token = Token(ord(text[0]), text.encode(), ends=False)
        sequence.append(token)
        event = sequence.output.accept(token, sequence.generated)
        events.append(sequence.finished(event) if isinstance(event, End) else event)
    return events


@pytest.mark.parametrize("stream", [False, True])
def test_the_rest_of_a_line_is_cut_and_its_tokens_count(stream: bool) -> None:
    sequence = Sequence(request("p", indent=2, stream=stream, token_ids=True), 0, [1], 10)
    *_, end = accept(sequence, "a", "\n ", "bc")
    assert isinstance(end, Finished)
    assert end.text == ("" if stream else "a\n ")
    assert (end.reason, end.tokens) == (FinishReason.LENGTH, 3)
    assert [detail.piece for detail in end.details] == ([] if stream else [b"a", b"\n "])


def test_text_held_back_for_a_stop_string_is_cut_too() -> None:
    sequence = Sequence(request("p", indent=1, stop=("bX",)), 0, [1], 10)
    *_, end = accept(sequence, "a\n", "cb")
    assert isinstance(end, Finished)
    assert end.text == "a\n"


def test_the_time_is_that_of_the_decode_steps() -> None:
    sequence = Sequence(request("p", line_seconds=0.5), 0, [1], 10)
    accept(sequence, "a")
    sequence.computed = 1
    sequence.advance(1, 0.6)
    (end,) = accept(sequence, "b\n")
    assert end == Finished(0, "ab\n", FinishReason.LENGTH, 2, 0, decode_seconds=0.6)
