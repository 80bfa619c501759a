"""Counts of reasoning tokens: those between the tags, however the tags are spelled."""

import pytest

from engine import Finished
from engine.core.output.reasoning_span import ReasoningSpan
from engine.request import Reasoning
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver


def counted(pieces: str, *, opened: bool = False, between: str = "") -> int:
    """Return the number of reasoning tokens among pieces that are separated by bars."""
    span = ReasoningSpan(Reasoning(opening="<think>", closing="</think>", opened=opened, between=between))
    for piece in pieces.split("|"):
        span.accept(piece.encode())
    return span.tokens


@pytest.mark.parametrize(
    ("pieces", "opened", "tokens"),
    [
        ("<think>|a|b|</think>|c|d", False, 2),
        ("a|b|</think>|c", True, 2),
        ("a|b|c", True, 3),
        ("<th|ink>|a|b|</th|ink|>|c", False, 2),
        ("\n|<think>|\n|a|\n|</think>|c", False, 3),
        ("a|b</th|ink>c|d", True, 2),
        ("a|b</think>c|d", True, 2),
        ("</think>|a", True, 0),
        ("a|<think>|b|</think>", False, 0),
        ("a|</think>|c|<think>|d|</think>", True, 1),
        ("a|</think>|\n|<think>|b|c|</think>|d", True, 3),
        ("a|b|</think>|<think></th|ink>|c", True, 2),
        ("", False, 0),
    ],
)
def test_tokens_between_the_tags_count(pieces: str, opened: bool, tokens: int) -> None:
    assert counted(pieces, opened=opened) == tokens


@pytest.mark.parametrize(
    ("pieces", "tokens"),
    [("a|b|<call>|c|</think>|d", 2), ("a|b<ca|ll>|c", 2), ("a|</think>|<call>|c", 1), ("a|<cal|c|</think>", 3)],
)
def test_a_call_may_end_reasoning_without_its_tag(pieces: str, tokens: int) -> None:
    span = ReasoningSpan(Reasoning(opening="<think>", closing="</think>", opened=True, call="<call>"))
    for piece in pieces.split("|"):
        span.accept(piece.encode())
    assert (span.tokens, span.open) == (tokens, False)


def test_a_further_message_of_the_family_may_be_reasoning() -> None:
    assert counted("<think>|a|</think>|<m>|<think>|b|c|</think>|d", between="<m>") == 3
    assert counted("<think>|a|</think>|<m>|d|<think>|b", between="<m>") == 1


@pytest.mark.parametrize("pieces", [" to|=me:|a|b|.|c", "\n to=me:|a|b|.|c", "to=me:|a|b|.|c"])
def test_a_tag_may_begin_with_a_blank(pieces: str) -> None:
    """As that of Muse Glimmer, whose messages begin with a blank."""
    span = ReasoningSpan(Reasoning(opening=" to=me:", closing=".", opened=False))
    for piece in pieces.split("|"):
        span.accept(piece.encode())
    assert (span.tokens, span.closed) == (2, True)


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize("stop", [(), ("cc",)])
def test_the_last_event_has_the_count_of_its_choice(speculative: bool, stop: tuple[str, ...]) -> None:
    model = FakeModel()
    text = b"abab/>cccc"
    runner = FakeRunner(model, script=lambda cells: text[(len(cells) - 4) % len(text)])
    driver = Driver(model, runner)
    reasoning = Reasoning(opening="<", closing="/>", opened=True)
    key = driver.serve(n=2, max_tokens=9, reasoning=reasoning, speculative=speculative, stop=stop)
    ends = [event for event in driver.news[key] if isinstance(event, Finished)]
    assert [end.reasoning for end in ends] == [driver.text(key, end.choice).index("/>") for end in ends]
