"""The capabilities of a template are detected by trial renders."""

import pytest

from gateway.chat.template import ChatTemplate
from gateway.chat.template_capabilities import (
    TemplateCapabilities,
    TemplateMessage,
    detect_capabilities,
    with_instructions,
)
from tests.gateway.chat import templates

CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
CALLED: TemplateMessage = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT: TemplateMessage = {"role": "tool", "content": "2", "tool_call_id": "call_1"}

_LOOP = "{% for m in messages %}{{ m.content }}"


def capabilities_of(source: str) -> TemplateCapabilities:
    return detect_capabilities(source, ChatTemplate(source).render)


@pytest.mark.parametrize(
    ("source", "capabilities"),
    [
        (templates.CHATML, TemplateCapabilities()),
        (
            templates.ARGUMENTS_AS_TEXT,
            TemplateCapabilities(object_arguments=False, null_content=True, calls_apart=True),
        ),
        (templates.NINE_LETTERS, TemplateCapabilities(short_ids=True)),
        (templates.TEXT_OR_CALLS, TemplateCapabilities(calls_apart=True)),
        (templates.PARTS, TemplateCapabilities(typed_content=True, calls=False)),
        (templates.THINKING_PARTS, TemplateCapabilities(thinking_parts=True, calls=False)),
        (templates.NO_SYSTEM, TemplateCapabilities(system=False, late_system=False, calls=False)),
        (templates.SYSTEM_FIRST, TemplateCapabilities(late_system=False, calls=False)),
        (templates.LAST_SYSTEM, TemplateCapabilities(late_system=False, calls=False)),
        (templates.ALTERNATING, TemplateCapabilities(late_system=False, calls=False)),
        (templates.CHATML + "{# knows the 'developer' #}", TemplateCapabilities(developer=True)),
        (templates.CHATML + "{# developer_preamble #}", TemplateCapabilities()),
        (templates.NO_DEVELOPER, TemplateCapabilities(calls=False)),
        (templates.CHATML + "{# <tool_responses> #}", TemplateCapabilities()),
        ("{{ raise_exception('Never.') }}", TemplateCapabilities(system=False, late_system=False, calls=False)),
        (templates.CHATML + "{# tool_responses, tool_call_id #}", TemplateCapabilities()),
        (f"{_LOOP}{{{{ m.reasoning_content }}}}{{# 'thinking' #}}{{% endfor %}}", TemplateCapabilities(calls=False)),
        (f"{_LOOP}{{# 'thinking' #}}{{% endfor %}}", TemplateCapabilities(calls=False)),
    ],
)
def test_capabilities(source: str, capabilities: TemplateCapabilities) -> None:
    assert capabilities_of(source) == capabilities


def test_arguments_become_objects_where_they_are_some() -> None:
    def arguments(text: str) -> object:
        call = {**CALL, "function": {"name": "add", "arguments": text}}
        (message,) = TemplateCapabilities().adapt([{**CALLED, "tool_calls": [call]}])
        return message["tool_calls"][0]["function"]["arguments"]

    assert arguments('{"x": {"y": [1]}}') == {"x": {"y": [1]}}
    assert arguments(f'{{"x": {2**64 + 1}}}') == {"x": 2**64 + 1}
    assert arguments("") == {}
    for text in ("[1]", '{"x": ', "NaN", '"x"'):
        assert arguments(text) == text


def test_what_was_given_stays_as_it_is() -> None:
    given = [{"role": "developer", "content": "Be brief."}, CALLED, RESULT]
    before = repr(given)
    TemplateCapabilities(typed_content=True, short_ids=True).adapt(given)
    assert repr(given) == before


@pytest.mark.parametrize(("given", "stays"), [("abcdefgh9", True), ("call_1234", False), ("abcdefgh\u00e9", False)])
def test_an_id_of_nine_letters_and_digits_stays(given: str, stays: bool) -> None:
    (message,) = TemplateCapabilities(short_ids=True).adapt([{**CALLED, "tool_calls": [{**CALL, "id": given}]}])
    found = message["tool_calls"][0]["id"]
    assert (found == given) is stays
    assert len(found) == 9
    assert found.isalnum()
    assert found.isascii()


def test_a_message_without_calls_has_a_text_and_keeps_a_role_that_the_template_has() -> None:
    capabilities = TemplateCapabilities(developer=True, null_content=True)
    for message in ({"role": "developer", "content": "Be brief."}, {"role": "assistant", "content": ""}):
        assert capabilities.adapt([message]) == [message]
    assert capabilities.adapt([{**CALLED, "content": "I look."}])[0]["content"] == "I look."


def test_every_capability_is_used() -> None:
    capabilities = TemplateCapabilities(typed_content=True, object_arguments=False, null_content=True, short_ids=True)
    first, called, result = capabilities.adapt([{"role": "developer", "content": "Be brief."}, CALLED, RESULT])
    assert first == {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    assert called["content"] is None
    assert called["tool_calls"][0]["function"] == CALL["function"]
    assert called["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) == 9
    assert result["tool_call_id"].isalnum()
    (kept,) = capabilities.adapt([{**RESULT, "tool_call_id": "abcDEF123"}])
    assert kept["tool_call_id"] == "abcDEF123"


def test_reasoning_alone_has_a_second_name() -> None:
    thought: TemplateMessage = {**CALLED, "reasoning_content": "Hm."}
    assert TemplateCapabilities().adapt([thought])[0]["thinking"] == "Hm."
    (said,) = TemplateCapabilities().adapt([{**thought, "content": "Well."}])
    assert "thinking" not in said
    assert said["reasoning"] == "Hm."


@pytest.mark.parametrize(
    ("capabilities", "messages", "instructed"),
    [
        (TemplateCapabilities(), ["system", "user"], ["system: system\n\nCall!", "user: user"]),
        (TemplateCapabilities(developer=True), ["developer"], ["developer: developer\n\nCall!"]),
        (TemplateCapabilities(), ["user"], ["system: Call!", "user: user"]),
        (TemplateCapabilities(system=False), ["user", "user"], ["user: Call!\n\nuser", "user: user"]),
        (TemplateCapabilities(system=False), ["system", "user"], ["user: system\n\nCall!\n\nuser"]),
        (TemplateCapabilities(system=False), ["assistant"], ["user: Call!", "assistant: assistant"]),
        (TemplateCapabilities(), [], ["system: Call!"]),
        (TemplateCapabilities(system=False), [], ["user: Call!"]),
    ],
)
def test_instructions_find_their_place(
    capabilities: TemplateCapabilities, messages: list[str], instructed: list[str]
) -> None:
    given = with_instructions([{"role": role, "content": role} for role in messages], "Call!")
    adapted = capabilities.adapt(given)
    assert [f"{message['role']}: {message['content']}" for message in adapted] == instructed


@pytest.mark.parametrize(
    ("messages", "adapted"),
    [
        (["system 1", "developer 2", "user 3"], ["system: 1\n2", "user: 3"]),
        (["user 1", "system 2"], ["user: 1\n2"]),
        (["user 1", "system 2", "user 3"], ["user: 1\n2\n3"]),
        (["user 1", "assistant 2", "system 3"], ["user: 1", "assistant: 2", "user: 3"]),
        (["user 1", "assistant 2", "system 3", "user 4"], ["user: 1", "assistant: 2", "user: 3\n4"]),
        (["user 1", "assistant 2", "tool 3", "system 4"], ["user: 1", "assistant: 2", "tool: 3\n4"]),
        (["assistant 1", "tool 2", "system 3", "user 4"], ["assistant: 1", "tool: 2\n3", "user: 4"]),
        (["user 1", "user 2"], ["user: 1", "user: 2"]),
        ([], []),
    ],
)
def test_late_instructions_join_the_texts_beside_them(messages: list[str], adapted: list[str]) -> None:
    given: list[TemplateMessage] = [{"role": role, "content": content} for role, content in map(str.split, messages)]
    found = TemplateCapabilities(late_system=False).adapt(given)
    assert [f"{message['role']}: {message['content']}" for message in found] == adapted


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize(
    ("others", "adapted"),
    [
        (["user Hi", "assistant 2"], ["user: Be brief.\n\nHi", "assistant: 2"]),
        (["assistant Hi"], ["user: Be brief.", "assistant: Hi"]),
        ([], ["user: Be brief."]),
    ],
)
def test_instructions_are_the_users_where_the_template_shows_none(
    role: str, others: list[str], adapted: list[str]
) -> None:
    turns: list[TemplateMessage] = [{"role": role, "content": content} for role, content in map(str.split, others)]
    found = capabilities_of(templates.NO_SYSTEM).adapt([{"role": role, "content": "Be brief."}, *turns])
    assert [f"{message['role']}: {message['content']}" for message in found] == adapted


def test_a_text_beside_calls_is_a_message_before_them_where_the_template_shows_one_of_both() -> None:
    capabilities = capabilities_of(templates.TEXT_OR_CALLS)
    said, called = capabilities.adapt([{**CALLED, "content": "I look."}])
    assert said == {"role": "assistant", "content": "I look."}
    assert (called["content"], called["tool_calls"][0]["function"]["arguments"]) == ("", {"x": 1})
    assert len(capabilities.adapt([CALLED, {"role": "assistant", "content": "It is 2."}])) == 2


def test_late_instructions_stay_where_the_template_shows_them() -> None:
    given = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}]
    assert TemplateCapabilities().adapt(given) == given
