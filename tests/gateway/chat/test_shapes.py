"""The message shape that a template accepts, found by trial renderings."""

import pytest

from gateway.chat.shapes import MessageShape, TemplateMessage, shape_for
from gateway.chat.template import ChatTemplate
from tests.gateway.chat import templates

CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
CALLED: TemplateMessage = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT: TemplateMessage = {"role": "tool", "content": "2", "tool_call_id": "call_1"}


def shape_of(source: str) -> MessageShape:
    template = ChatTemplate(source)
    return shape_for(source, lambda messages: template.render({"messages": messages, "tools": [{"name": "f"}]}))


@pytest.mark.parametrize(
    ("source", "shape"),
    [
        (templates.CHATML, MessageShape()),
        (templates.ARGUMENTS_AS_TEXT, MessageShape(object_arguments=False, null_content=True)),
        (templates.NINE_LETTERS, MessageShape(short_ids=True)),
        (templates.PARTS, MessageShape(typed_content=True, calls=False)),
        (templates.NO_SYSTEM, MessageShape(system=False, calls=False)),
        (templates.CHATML + "{# knows the developer #}", MessageShape(developer=True)),
        ("{{ raise_exception('Never.') }}", MessageShape(system=False, calls=False)),
    ],
)
def test_the_shape_of_a_template_is_detected(source: str, shape: MessageShape) -> None:
    assert shape_of(source) == shape


def test_arguments_become_objects_if_they_are_json_objects() -> None:
    def arguments(text: str) -> object:
        call = {**CALL, "function": {"name": "add", "arguments": text}}
        (message,) = MessageShape().apply([{**CALLED, "tool_calls": [call]}])
        return message["tool_calls"][0]["function"]["arguments"]

    assert arguments('{"x": {"y": [1]}}') == {"x": {"y": [1]}}
    assert arguments("") == {}
    for text in ("[1]", '{"x": ', "NaN", '"x"'):
        assert arguments(text) == text


def test_apply_does_not_change_its_input() -> None:
    given = [{"role": "developer", "content": "Be brief."}, CALLED, RESULT]
    before = repr(given)
    MessageShape(typed_content=True, short_ids=True).apply(given)
    assert repr(given) == before


def test_apply_supports_every_trait() -> None:
    shape = MessageShape(typed_content=True, object_arguments=False, null_content=True, short_ids=True)
    first, called, result = shape.apply([{"role": "developer", "content": "Be brief."}, CALLED, RESULT])
    assert first == {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    assert called["content"] is None
    assert called["tool_calls"][0]["function"] == CALL["function"]
    assert called["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) == 9
    assert result["tool_call_id"].isalnum()
    (kept,) = shape.apply([{**RESULT, "tool_call_id": "abcDEF123"}])
    assert kept["tool_call_id"] == "abcDEF123"


def test_reasoning_alone_has_a_second_name() -> None:
    thought: TemplateMessage = {**CALLED, "reasoning_content": "Hm."}
    assert MessageShape().apply([thought])[0]["thinking"] == "Hm."
    assert "thinking" not in MessageShape().apply([{**thought, "content": "Well."}])[0]


@pytest.mark.parametrize(
    ("shape", "messages", "instructed"),
    [
        (MessageShape(), ["system", "user"], ["system: system\n\nCall!", "user: user"]),
        (MessageShape(), ["developer"], ["developer: developer\n\nCall!"]),
        (MessageShape(), ["user"], ["system: Call!", "user: user"]),
        (MessageShape(system=False), ["user", "user"], ["user: Call!\n\nuser", "user: user"]),
        (MessageShape(system=False), ["assistant"], ["system: Call!", "assistant: assistant"]),
    ],
)
def test_instructions_go_to_the_system_message_or_the_first_one(
    shape: MessageShape, messages: list[str], instructed: list[str]
) -> None:
    told = shape.instruct([{"role": role, "content": role} for role in messages], "Call!")
    assert [f"{message['role']}: {message['content']}" for message in told] == instructed
