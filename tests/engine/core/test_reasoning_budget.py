"""The end of reasoning: it is forced once, and only reasoning at the beginning of a text counts."""

from collections.abc import Iterable

import pytest

from engine.core.reasoning_budget import ReasoningBudget
from engine.request import Reasoning
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver

END = [900, 901]


def accept(limit: ReasoningBudget, piece: bytes) -> None:
    """Add the bytes of a token that was drawn as the budget says."""
    limit.accept(piece, forced=bool(limit.due))


def drawn(pieces: Iterable[str], *, budget: int, opened: bool = False) -> list[str]:
    """Return the pieces of a choice whose model draws `pieces`, with the forced tokens in between."""
    reasoning = Reasoning(budget=budget, opening="<think>", closing="</think>", opened=opened)
    limit = ReasoningBudget(reasoning, END)
    text = []
    for piece in pieces:
        while due := limit.due:
            text.append(f"[{due[0]}]")
            accept(limit, b"?")
        text.append(piece)
        accept(limit, piece.encode())
    return text


@pytest.mark.parametrize(
    ("pieces", "budget", "opened", "text"),
    [
        ("a b c d", 2, True, "a b [900] [901] c d"),
        ("a b c d", 0, True, "[900] [901] a b c d"),
        ("<think> a b c", 1, False, "<think> a [900] [901] b c"),
        ("<th ink> a b c", 1, False, "<th ink> a [900] [901] b c"),
        ("<think> a </think> b c", 2, False, "<think> a </think> b c"),
        ("a </th ink> b c d e", 4, True, "a </th ink> b c d e"),
        ("a <think> b c d", 1, False, "a <think> b c d"),
        ("a </think> <think> b c d", 3, True, "a </think> <think> b c d"),
    ],
)
def test_the_end_of_the_first_reasoning_is_forced(pieces: str, budget: int, opened: bool, text: str) -> None:
    assert drawn(pieces.split(), budget=budget, opened=opened) == text.split()


def test_no_end_is_forced_into_a_call_that_ended_the_reasoning() -> None:
    limit = ReasoningBudget(Reasoning(budget=3, opening="<think>", closing="</think>", opened=True, call="<call>"), END)
    for piece in (b"a", b"<call>", b"b", b"c", b"d"):
        assert not limit.due
        accept(limit, piece)


def test_whitespace_may_come_before_the_opening() -> None:
    assert drawn(["\n", "<think>", "a", "b"], budget=1) == ["\n", "<think>", "a", "[900]", "[901]", "b"]


def unlimited(*, opened: bool) -> ReasoningBudget:
    return ReasoningBudget(Reasoning(budget=None, opening="<think>", closing="</think>", opened=opened), END)


def forced(limit: ReasoningBudget) -> list[int]:
    """Return the tokens that are forced until none is due."""
    tokens = []
    while due := limit.due:
        tokens.append(due[0])
        accept(limit, b"?")
    return tokens


def test_reasoning_without_a_budget_goes_on_until_it_is_ended() -> None:
    limit = unlimited(opened=True)
    for _ in range(1000):
        accept(limit, b"a")
        assert not limit.due
    limit.end()
    assert forced(limit) == END


def test_an_end_that_comes_during_a_draw_follows_the_drawn_token() -> None:
    limit = unlimited(opened=True)
    limit.end()
    limit.accept(b"a", forced=False)
    assert forced(limit) == END


def test_only_reasoning_that_has_begun_is_ended() -> None:
    limit = unlimited(opened=False)
    limit.end()
    for piece in (b"<think>", b"a"):
        accept(limit, piece)
        assert not limit.due
    accept(limit, b"</think>")
    limit.end()
    assert not limit.due


@pytest.mark.parametrize("budget", [1, None])
def test_the_end_waits_for_a_whole_character(budget: int | None) -> None:
    limit = ReasoningBudget(Reasoning(budget=budget, opening="<", closing=">", opened=True), END)
    euro = "€".encode()
    accept(limit, euro[:1])
    limit.end()
    accept(limit, euro[1:2])
    assert not limit.due
    accept(limit, euro[2:])
    assert limit.due == END


@pytest.mark.parametrize("speculative", [False, True])
def test_each_choice_of_a_request_has_its_own_budget(speculative: bool) -> None:
    model = FakeModel()
    driver = Driver(model, FakeRunner(model, script=lambda _cells: ord("a")))
    reasoning = Reasoning(budget=3, opening="<", closing="/>", opened=True)
    key = driver.serve(n=2, max_tokens=9, reasoning=reasoning, speculative=speculative)
    assert [driver.text(key, choice) for choice in range(2)] == ["aaa/>aaaa"] * 2


def test_the_reasoning_of_all_choices_of_one_request_is_ended() -> None:
    model = FakeModel()
    driver = Driver(model, FakeRunner(model, script=lambda _cells: ord("a")))
    reasoning = Reasoning(budget=None, opening="<", closing="/>", opened=True, controlled=True)
    keys = [driver.add(n=n, max_tokens=20, reasoning=reasoning) for n in (2, 1)]
    plain = driver.add(max_tokens=20)
    for _ in range(5):
        driver.step()
    driver.scheduler.end_reasoning(keys[0])
    driver.scheduler.end_reasoning(plain)
    driver.drain()
    assert all("/>" in driver.text(keys[0], choice) for choice in range(2))
    assert driver.text(keys[1]) == driver.text(plain) == "a" * 20
    driver.scheduler.end_reasoning(keys[0])
