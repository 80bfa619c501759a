"""The budget of reasoning: its end is forced once, and only reasoning at the beginning of a text counts."""

from collections.abc import Iterable

import pytest

from engine.core.reasoning_budget import ReasoningBudget
from engine.request import Reasoning
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver

END = [900, 901]


def drawn(pieces: Iterable[str], *, budget: int, opened: bool = False) -> list[str]:
    """Return the pieces of a choice whose model draws `pieces`, with the forced tokens in between."""
    reasoning = Reasoning(budget=budget, opening="<think>", closing="</think>", opened=opened)
    limit = ReasoningBudget(reasoning, END)
    text = []
    for piece in pieces:
        while (forced := limit.forced) is not None:
            text.append(f"[{forced}]")
            limit.accept(b"?")
        text.append(piece)
        limit.accept(piece.encode())
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


def test_whitespace_may_come_before_the_opening() -> None:
    assert drawn(["\n", "<think>", "a", "b"], budget=1) == ["\n", "<think>", "a", "[900]", "[901]", "b"]


@pytest.mark.parametrize("speculative", [False, True])
def test_each_choice_of_a_request_has_its_own_budget(speculative: bool) -> None:
    model = FakeModel()
    driver = Driver(model, FakeRunner(model, script=lambda _cells: ord("a")))
    reasoning = Reasoning(budget=3, opening="<", closing="/>", opened=True)
    key = driver.add(n=2, max_tokens=9, reasoning=reasoning, speculative=speculative)
    driver.drain()
    assert [driver.text(key, choice) for choice in range(2)] == ["aaa/>aaaa"] * 2
