"""The generated training text: correct, seeded, and without the held-out cases."""

import re
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from engine.embedded.training import evaluation
from engine.embedded.training.corpus import counting, examples, sums
from engine.embedded.training.corpus.draw import HELD_OUT_SHARE, Draw, is_held_out
from engine.embedded.training.corpus.example import Completion, Conversation, Example
from engine.embedded.training.template import render

COUNT = 3_000


def trained_on(count: int = COUNT) -> Iterator[Example]:
    return islice(examples(Draw(1, held_out=False)), count)


def text(example: Example) -> str:
    if isinstance(example, Completion):
        return example.prompt + example.answer
    return render(example.messages, example.tools, ask=False)


def answers(example: Example) -> Iterator[str]:
    if isinstance(example, Completion):
        yield example.prompt + example.answer
    else:
        yield from (message["content"] or "" for message in example.messages if message["role"] == "assistant")


def test_the_same_seed_gives_the_same_text() -> None:
    assert [text(one) for one in trained_on(300)] == [text(one) for one in trained_on(300)]
    assert [text(one) for one in trained_on(300)] != [
        text(one) for one in islice(examples(Draw(2, held_out=False)), 300)
    ]


def test_every_sum_is_right_and_none_is_held_out() -> None:
    found = [
        tuple(map(int, match.groups()))
        for one in trained_on()
        for answer in answers(one)
        if (match := re.fullmatch(r"(\d+)\+(\d+)=(\d+)", answer))
    ]
    assert len(found) > COUNT / 2
    assert all(a + b == total for a, b, total in found)
    assert not any(is_held_out(f"{min(a, b)}+{max(a, b)}") for a, b, _ in found)


def test_a_tenth_of_all_pairs_is_held_out() -> None:
    pairs = [(a, b) for a in range(100) for b in range(a, 100)]
    held_out = sum(is_held_out(f"{a}+{b}") for a, b in pairs)
    assert held_out / len(pairs) == pytest.approx(HELD_OUT_SHARE, abs=0.01)


@pytest.mark.parametrize(
    "draw_one",
    [Draw.word, Draw.place, lambda draw: draw.of(["a", "b", "c", "d", "e", "f"], [str(n) for n in range(50)])],
    ids=["word", "place", "wording"],
)
def test_training_and_held_out_cases_are_disjoint(draw_one: Callable[[Draw], str]) -> None:
    training, judging = Draw(1, held_out=False), Draw(1, held_out=True)
    seen = {draw_one(training) for _ in range(COUNT)}
    unseen = {draw_one(judging) for _ in range(COUNT)}
    assert seen.isdisjoint(unseen)
    assert len(unseen) > 10


def test_no_case_of_the_evaluation_is_in_the_training_text() -> None:
    trained = {text(one) for one in trained_on()}
    for case in evaluation.cases(20):
        asked = case.asked
        whole = asked if isinstance(asked, Completion) else Conversation(asked.messages, asked.tools)
        assert text(whole) not in trained


def test_counting_is_right() -> None:
    draw = Draw(1, held_out=False)
    for _ in range(200):
        asked, answer = counting.asked(draw)
        numbers = [int(number) for number in answer["content"].split()]
        wanted = [int(number) for number in re.findall(r"\d+", asked["content"])]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert wanted in ([numbers[-1]], [numbers[0], numbers[-1]])


def test_a_sum_to_complete_has_no_other_text() -> None:
    one = sums.completion(Draw(3, held_out=True))
    assert re.fullmatch(r"\d+\+\d+=", one.prompt)
    assert re.fullmatch(r"\d+", one.answer)
