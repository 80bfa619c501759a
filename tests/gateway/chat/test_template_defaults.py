"""Variables of chat templates that the operator sets, and llama.cpp's variables with the date."""

import re
from dataclasses import replace
from typing import Any

import pytest

from engine import RequestError, text_of
from gateway.chat.conversation import Conversation
from gateway.chat.rendering import encode_conversation, render
from gateway.chat.template_key import TemplateDefaults, template_key
from gateway.chat.template_variables import Effort, template_variables
from gateway.chat.tools import Tool
from tests.gateway.chat import templates
from tests.gateway.fake_engine import MODEL

MESSAGES: Any = ({"role": "user", "content": "Hi"},)


def prompt_of(source: str, defaults: TemplateDefaults, **fields: Any) -> str:
    key = template_key(replace(MODEL, chat_template=source), defaults=defaults)
    return text_of(render(key, encode_conversation(Conversation(messages=MESSAGES, **fields))).text)


@pytest.mark.parametrize(("given", "text"), [({}, "False"), ({"enable_thinking": True}, "True")])
def test_a_request_replaces_a_variable_of_the_operator(given: dict[str, Any], text: str) -> None:
    defaults = TemplateDefaults(variables='{"enable_thinking": false}')
    assert prompt_of("{{ enable_thinking }}", defaults, template_kwargs=given) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "False disabled"),
        ({"enable_thinking": True}, "True enabled"),
        ({"enable_thinking": True, "thinking_mode": "adaptive"}, "True adaptive"),
        ({"thinking": True}, "True disabled"),
    ],
)
def test_the_switch_of_reasoning_has_the_names_of_all_families(given: dict[str, Any], text: str) -> None:
    defaults = TemplateDefaults(variables='{"enable_thinking": false}')
    assert prompt_of("{{ thinking }} {{ thinking_mode }}", defaults, template_kwargs=given) == text
    assert prompt_of("{{ thinking }}{{ thinking_mode }}", TemplateDefaults()) == ""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"reasoning_effort": "low"}, "low"),
        ({"reasoning_effort": "medium"}, "high"),
        ({"reasoning_effort": "xhigh"}, "max"),
        ({"reasoning_effort": "low", "thinking_effort": "high"}, "high"),
        ({"reasoning_effort": "none"}, ""),
        ({"reasoning_effort": ["low"]}, ""),
        ({}, ""),
    ],
)
def test_the_effort_of_reasoning_has_the_name_and_the_values_of_kimi_k3(given: dict[str, Any], text: str) -> None:
    assert prompt_of("{{ thinking_effort }}", TemplateDefaults(), template_kwargs=given) == text


@pytest.mark.parametrize(
    ("effort", "text"), [("minimal", "low"), ("medium", "medium"), ("max", "xhigh"), ("none", "low")]
)
def test_the_effort_of_reasoning_is_the_strength_of_muse_glimmer(effort: str, text: str) -> None:
    given = {"reasoning_effort": effort}
    assert prompt_of("{{ reasoning_strength }}", TemplateDefaults(), template_kwargs=given) == text


@pytest.mark.parametrize(
    ("taken", "efforts"),
    [
        (["none", "high"], {"none": "none", "minimal": "high", "medium": "high", "high": "high", "max": "high"}),
        (["low", "medium", "xhigh"], {"none": "none", "low": "low", "high": "xhigh", "max": "xhigh", "minimal": "low"}),
        (["no_think", "low", "high"], {"none": "none", "low": "low", "medium": "high", "xhigh": "high"}),
        (["none"], {"none": "none", "low": ""}),
    ],
)
def test_an_effort_that_the_template_refuses_is_the_nearest_that_it_takes(
    taken: list[str], efforts: dict[Effort, str]
) -> None:
    source = templates.EFFORTS.replace("efforts_taken", str(taken))
    for effort, shown in efforts.items():
        given = template_variables(effort, None, {})
        assert prompt_of(source, TemplateDefaults(), template_kwargs=given).strip() == f"Hi {shown}".strip()


def test_the_name_of_no_effort_is_that_of_the_template() -> None:
    source = templates.EFFORTS.replace("efforts_taken", "['no_think', 'high']").replace("enable_thinking", "missing")
    for effort, shown in (("none", "no_think"), ("low", "high"), ("no_think", "no_think")):
        assert prompt_of(source, TemplateDefaults(), template_kwargs={"reasoning_effort": effort}) == f"Hi {shown}"
    without = templates.EFFORTS.replace("efforts_taken", "['high']").replace("enable_thinking", "missing")
    assert prompt_of(without, TemplateDefaults(), template_kwargs={"reasoning_effort": "none"}) == "Hi "
    with pytest.raises(RequestError, match="Unknown effort some"):
        prompt_of(without, TemplateDefaults(), template_kwargs={"reasoning_effort": "some"})


@pytest.mark.parametrize("dated", [False, True])
def test_a_template_that_changes_the_lists_of_the_operator_changes_no_later_prompt(dated: bool) -> None:
    source = "{% set _ = [names.append('b'), more.names.pop()] %}{{ names + more.names }}"
    defaults = TemplateDefaults(variables='{"names": ["a"], "more": {"names": ["c", "d"]}}', dated=dated)
    key = template_key(replace(MODEL, chat_template=source), defaults=defaults)
    conversation = encode_conversation(Conversation(messages=MESSAGES))
    assert [text_of(render(key, conversation).text) for _ in range(3)] == ["['a', 'b', 'c']"] * 3


def test_the_date_is_given_on_request_only() -> None:
    source = "{{ date_string }}|{{ datetime }}"
    text = prompt_of(source, TemplateDefaults(dated=True))
    assert re.fullmatch(r"\d\d [A-Z][a-z]{2} \d{4}\|[A-Z][a-z]{2} \d\d \d{4}", text)
    assert prompt_of(source, TemplateDefaults()) == "|"


def test_tools_have_firefunctions_name_too() -> None:
    source = "{{ functions }}"
    assert prompt_of(source, TemplateDefaults()) == ""
    assert '"name": "add"' in prompt_of(source, TemplateDefaults(), tools=(Tool("add", "Adds."),))


@pytest.mark.parametrize(("effort", "text"), [("none", "Hi no reasoning"), ("low", "Hi no reasoning"), ("high", "Hi")])
def test_no_effort_is_the_least_one_where_the_template_ignores_the_name(effort: Effort, text: str) -> None:
    given = template_variables(effort, None, {})
    assert prompt_of(templates.NO_NONE, TemplateDefaults(), template_kwargs=given) == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (templates.NO_NONE, "Hi no reasoning"),
        (
            templates.EFFORTS.replace("efforts_taken", "['no_think', 'high']").replace("enable_thinking", "off"),
            "Hi no_think",
        ),
        ("{{ reasoning_strength }}", "low"),
        ("{{ reasoning_effort }}", ""),
    ],
)
def test_the_switch_alone_is_no_effort(source: str, text: str) -> None:
    """As Anthropic's clients send it."""
    for defaults, given in (("{}", {"enable_thinking": False}), ('{"enable_thinking": false}', {})):
        assert prompt_of(source, TemplateDefaults(variables=defaults), template_kwargs=given) == text


@pytest.mark.parametrize(
    ("taken", "given", "text"),
    [
        (["no_think", "low", "high"], {"enable_thinking": True}, "Hi high"),
        (["no_think", "medium"], {"enable_thinking": True}, "Hi medium"),
        (["no_think", "low"], {"enable_thinking": True, "reasoning_effort": "no_think"}, "Hi no_think"),
        (["no_think", "low"], {}, "Hi "),
        (["low", "high"], {"enable_thinking": True}, "Hi "),
    ],
)
def test_the_switch_alone_is_an_effort_where_the_template_has_none_without_it(
    taken: list[str], given: dict[str, Any], text: str
) -> None:
    """Hunyuan 3's, for the clients of Ollama and of Anthropic."""
    source = templates.EFFORTS.replace("efforts_taken", str(taken)).replace("enable_thinking", "off")
    assert prompt_of(source, TemplateDefaults(), template_kwargs=given) == text
