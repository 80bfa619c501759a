"""A last message that has reasoning alone goes on in its reasoning."""

from typing import Any

import pytest

from engine import text_of
from gateway.chat.deltas import ContentDelta, ReasoningDelta
from tests.gateway.chat import templates
from tests.gateway.chat.test_conversation import ASKED, SAID, prompt_of

SHOWN = (
    "{% for m in messages %}{{ m.role }}: "
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}assistant: {{ end }}{% endif %}"
)
HIDDEN = SHOWN.replace("m.reasoning_content %}", "false %}")
THOUGHT = {"role": "assistant", "content": "", "reasoning_content": "Hm. "}


def text_from(source: str, *messages: dict[str, Any], **kwargs: Any) -> str:
    return text_of(prompt_of(source, *messages, continue_final=True, template_kwargs=kwargs).text)


@pytest.mark.parametrize("thought", [THOUGHT, {**THOUGHT, "content": None}])
@pytest.mark.parametrize(
    ("source", "end", "text"),
    [
        (SHOWN, "", "user: Hi;assistant: <think>\nHm. "),
        (SHOWN.replace("<think>\n", "<think>I: "), "", "user: Hi;assistant: <think>I: Hm. "),
        (HIDDEN, "", "user: Hi;assistant: <think>\nHm. "),
        (HIDDEN, "<think>", "user: Hi;assistant: <think>Hm. "),
        (HIDDEN, "<think>\n\n</think>\n\n", "user: Hi;assistant: <think>\n\nHm. "),
        (HIDDEN, "</think>", "user: Hi;assistant: <think>\nHm. "),
    ],
)
def test_the_prompt_ends_in_the_reasoning_whether_the_template_shows_it_or_not(
    source: str, end: str, text: str, thought: dict[str, Any]
) -> None:
    assert text_from(source, ASKED, thought, end=end) == text


def test_the_answer_begins_in_the_reasoning() -> None:
    prompt = prompt_of(templates.THINKING, ASKED, THOUGHT, continue_final=True)
    assert text_of(prompt.text).endswith("<|im_start|>assistant\n<think>\nHm. ")
    parser = prompt.parsing.parser()
    assert parser.feed("So.</think>Well.") + parser.finish() == [ReasoningDelta("So."), ContentDelta("Well.")]
    assert prompt.reasoning is not None
    assert prompt.reasoning.opened


def test_a_message_with_content_goes_on_in_its_content() -> None:
    thought = {**THOUGHT, "content": "Well "}
    assert text_from(SHOWN, ASKED, thought) == "user: Hi;assistant: <think>\nHm. \n</think>\n\nWell "
    assert text_from(HIDDEN, ASKED, thought) == "user: Hi;assistant: Well "
    assert text_from(SHOWN, ASKED, SAID) == "user: Hi;assistant: Well "


def test_a_model_that_does_not_reason_answers() -> None:
    assert text_from(templates.PARTS, ASKED, THOUGHT).endswith("assistant:")
    parser = prompt_of(templates.PARTS, ASKED, THOUGHT, continue_final=True).parsing.parser()
    assert parser.feed("Well.") == [ContentDelta("Well.")]
