"""Reasoning that stays in the content, with its tags."""

import pytest

from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta
from tests.gateway.chat.formats.case import Case
from tests.gateway.chat.formats.cases import CASES, TEMPLATES
from tests.gateway.chat.formats.parsing import SIGNATURES, choose, joined, parse, weather

ANALYSIS = "<|channel|>analysis<|message|>"
MARKED = {"apriel", "granite", "cohere", "functionary-3.2", "harmony", "kimi-k3", "minimax-m3", "muse", "solar"}
"""Families with marks around content, which are dropped as always."""
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def inlined(family: str, pieces: list[str], *, thinking: bool = False) -> list[Delta]:
    parser = choose(TEMPLATES[family]).parser(tools=SIGNATURES, thinking=thinking, inline=True)
    return joined([delta for piece in pieces for delta in parser.feed(piece)] + parser.finish())


def calls_in(deltas: list[Delta]) -> list[Delta]:
    return [delta for delta in deltas if isinstance(delta, CallBegan | CallArguments)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_calls_are_those_of_other_answers_and_no_delta_is_reasoning(case: Case) -> None:
    deltas = inlined(case.family, [case.text], thinking=case.thinking)
    assert inlined(case.family, list(case.text), thinking=case.thinking) == deltas
    assert calls_in(deltas) == calls_in(parse(choose(TEMPLATES[case.family]), [case.text], thinking=case.thinking))
    assert all(isinstance(delta, ContentDelta | CallBegan | CallArguments) for delta in deltas)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.family not in MARKED and not calls_in(list(case.deltas))], ids=str
)
def test_without_calls_the_content_is_the_text_of_the_model(case: Case) -> None:
    tags = choose(TEMPLATES[case.family]).reasoning_tags
    opened = tags.opening if tags and case.thinking else ""
    assert inlined(case.family, [case.text], thinking=case.thinking) == [ContentDelta(opened + case.text)]


@pytest.mark.parametrize(
    ("family", "text", "thinking", "deltas"),
    [
        (
            "hermes",
            f"<think>\nHm.\n</think>\n\nI look.\n{CALL}",
            False,
            [ContentDelta("<think>\nHm.\n</think>\n\nI look."), *weather()],
        ),
        ("hermes", "\nHm.\n</think>\n\nYes.", True, [ContentDelta("<think>\nHm.\n</think>\n\nYes.")]),
        ("hermes", "<think>Hm.\n", False, [ContentDelta("<think>Hm.\n")]),
        ("mistral", "[THINK]Hm.[/THINK]Yes.", False, [ContentDelta("[THINK]Hm.[/THINK]Yes.")]),
        (
            "harmony",
            f"{ANALYSIS}Hm.<|end|><|start|>assistant{ANALYSIS}So.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
            False,
            [ContentDelta(f"{ANALYSIS}Hm.<|end|>{ANALYSIS}So.<|end|>Yes.")],
        ),
        ("harmony", "Hm.", True, [ContentDelta(f"{ANALYSIS}Hm.")]),
        (
            "muse",
            " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Yes.",
            False,
            [ContentDelta(" to=self<|message|>Hm.<|eom|>Yes.")],
        ),
    ],
)
def test_the_tags_are_content_also_where_the_prompt_has_the_first_or_the_text_lacks_the_last(
    family: str, text: str, thinking: bool, deltas: list[Delta]
) -> None:
    assert inlined(family, [text], thinking=thinking) == deltas
