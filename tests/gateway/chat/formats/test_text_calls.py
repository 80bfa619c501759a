"""Calls as text, for templates without tools: the parser reads the same text that the prompt shows."""

from typing import Any

import pytest

from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.text_calls import IN_JSON, IN_LFM2, IN_PYTHON, TextCalls
from gateway.chat.template_capabilities import TemplateMessage
from tests.gateway.chat.formats.parsing import choose

GEMMA_3 = "<start_of_turn>"
ASKED: TemplateMessage = {"role": "user", "content": "What is 1 + 1?"}


def called(*arguments: str, content: str | None = None) -> TemplateMessage:
    calls: list[dict[str, Any]] = [
        {"id": f"call_{at}", "type": "function", "function": {"name": "add", "arguments": text}}
        for at, text in enumerate(arguments)
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def gave(text: str) -> TemplateMessage:
    return {"role": "tool", "content": text, "tool_call_id": "call_0", "name": "add"}


def rendered(text_calls: TextCalls, *messages: TemplateMessage) -> list[tuple[str, str]]:
    assert all(set(message) == {"role", "content"} for message in text_calls.render(messages))
    return [(message["role"], message["content"]) for message in text_calls.render(messages)]


TWO_CALLS = """I add.
<tool_call>
{"name": "add", "arguments": {"x": 1}}
</tool_call>
<tool_call>
{"name": "add", "arguments": {}}
</tool_call>"""


def test_calls_are_written_in_json() -> None:
    assert rendered(IN_JSON, ASKED, called('{"x": 1}', "", content="I add."), gave("2"), gave("0"), ASKED) == [
        ("user", "What is 1 + 1?"),
        ("assistant", TWO_CALLS),
        ("user", "<tool_response>\n2\n</tool_response>\n\n<tool_response>\n0\n</tool_response>\n\nWhat is 1 + 1?"),
    ]


def test_calls_are_written_in_python() -> None:
    messages = rendered(IN_PYTHON, called('{"x": 1, "y": [true, null, "a"]}'), gave("2"), called("{", "[1]"))
    assert messages == [
        ("assistant", "```tool_code\nadd(x=1, y=[True, None, 'a'])\n```"),
        ("user", "```tool_output\n2\n```"),
        ("assistant", "```tool_code\nadd({)\n```\n```tool_code\nadd([1])\n```"),
    ]


def test_calls_are_written_as_lfm2_writes_them() -> None:
    """In one list, with results in messages of their own, as the template of LFM2.5 renders them."""
    asked, called_twice, *results = IN_LFM2.render(
        [ASKED, called('{"x": 1}', '{"y": "a"}'), gave("2"), gave("0"), ASKED]
    )
    assert asked == ASKED
    assert called_twice == {
        "role": "assistant",
        "content": "<|tool_call_start|>[add(x=1), add(y='a')]<|tool_call_end|>",
    }
    assert results == [gave("2"), gave("0"), ASKED]


@pytest.mark.parametrize("template", ["", GEMMA_3, "List of tools: [{{ tools }}]", "<function_calls>"])
def test_the_parser_reads_the_written_calls(template: str) -> None:
    form = choose(template)
    ((_, text),) = rendered(form.text_calls, called('{"x": 1}', content="I add."))
    parser = form.parser(tools=[Signature("add")], thinking=False)
    content, began, *arguments = parser.feed(text) + parser.finish()
    assert (content, began) == (ContentDelta("I add."), CallBegan(0, "add"))
    assert "".join(part.text for part in arguments if isinstance(part, CallArguments)).replace(" ", "") == '{"x":1}'
