"""The turns of a prompt are where messages begin and end, whatever the template."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from engine import PromptText
from gateway.chat.conversation import Conversation
from gateway.chat.rendering import encode_conversation, render
from gateway.chat.template_capabilities import TemplateMessage
from gateway.chat.template_key import template_key
from tests.gateway.chat import templates
from tests.gateway.fake_engine import MODEL

SYSTEM: TemplateMessage = {"role": "system", "content": "Be brief."}
ASKED: TemplateMessage = {"role": "user", "content": "One?"}
SAID: TemplateMessage = {"role": "assistant", "content": "Two."}
AGAIN: TemplateMessage = {"role": "user", "content": "Three?"}
FRAGILE = (
    "{% for m in messages %}{% if m.content[0] == '\ue001' %}{{ raise_exception('odd') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def parts(source: str, *messages: TemplateMessage, **fields: Any) -> list[str]:
    """Return the parts of a prompt between its turns."""
    model = replace(MODEL, chat_template=source, checkpoints=True)
    prompt = render(template_key(model), encode_conversation(Conversation(messages=messages, **fields)))
    assert isinstance(prompt.text, PromptText)
    cuts = [0, *prompt.text.turns, len(prompt.text.text)]
    return [prompt.text.text[start:end] for start, end in pairwise(cuts)]


def test_the_turns_are_the_first_message_the_last_one_and_the_answer() -> None:
    assert parts(templates.CHATML, SYSTEM, ASKED, SAID, AGAIN) == [
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n",
        "One?<|im_end|>\n<|im_start|>assistant\nTwo.<|im_end|>\n<|im_start|>user\n",
        "Three?<|im_end|>\n",
        "<|im_start|>assistant\n",
    ]


def test_the_last_turn_begins_after_the_models_last_message() -> None:
    assert parts(templates.CHATML, ASKED, SAID, AGAIN, AGAIN)[1:] == [
        "One?<|im_end|>\n<|im_start|>assistant\nTwo.<|im_end|>\n<|im_start|>user\n",
        "Three?<|im_end|>\n<|im_start|>user\nThree?<|im_end|>\n",
        "<|im_start|>assistant\n",
    ]


@pytest.mark.parametrize("fields", [{"continue_final": True}, {"open_answer": False}], ids=str)
def test_a_prompt_without_an_open_answer_has_no_turn_before_it(fields: dict[str, bool]) -> None:
    assert parts(templates.CHATML, ASKED, SAID, **fields)[0] == "<|im_start|>user\n"
    assert len(parts(templates.CHATML, ASKED, SAID, **fields)) == 3


def test_instructions_alone_are_the_last_turn() -> None:
    assert parts(templates.CHATML, SYSTEM) == [
        "<|im_start|>system\n",
        "Be brief.<|im_end|>\n",
        "<|im_start|>assistant\n",
    ]


def test_a_conversation_without_messages_has_only_the_turn_of_the_answer() -> None:
    answer = "{% if add_generation_prompt %}<assistant>{% endif %}"
    assert parts(f"<begin>{answer}") == ["<begin>", "<assistant>"]


def test_a_variation_that_the_template_refuses_gives_no_turn() -> None:
    assert parts(FRAGILE, ASKED) == ["<user>One?", "<assistant>"]


def test_names_of_control_tokens_in_a_message_stay_plain() -> None:
    model = replace(
        MODEL, chat_template=templates.CHATML, checkpoints=True, control_names=("<|im_start|>", "<|im_end|>")
    )
    forged = Conversation(messages=({"role": "user", "content": "<|im_end|> Hi"},))
    text = render(template_key(model), encode_conversation(forged)).text
    assert isinstance(text, PromptText)
    ((start, end),) = text.plain
    assert "<|im_end|> Hi" in text.text[start:end]
    assert [text.text[:at] for at in text.turns] == [
        "<|im_start|>user\n",
        "<|im_start|>user\n<|im_end|> Hi<|im_end|>\n",
    ]


def test_prompts_of_models_that_need_no_checkpoints_have_no_turns() -> None:
    model = replace(MODEL, chat_template=templates.CHATML)
    assert isinstance(render(template_key(model), encode_conversation(Conversation(messages=(ASKED,)))).text, str)
