"""The choice of a format by the chat template."""

import pytest

from engine.embedded.training.template import TEMPLATE
from gateway.chat.formats import recognize
from gateway.chat.formats.parser import Tags
from gateway.chat.tools import Tool
from tests.gateway.chat.formats.case import wide
from tests.gateway.chat.formats.cases import TEMPLATES
from tests.gateway.chat.formats.parsing import choose


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_template_shows_its_family(family: str) -> None:
    assert recognize(TEMPLATES[family]).name == family


def test_the_embedded_model_calls_as_hermes_does_and_does_not_think() -> None:
    chosen = recognize(TEMPLATE)
    assert chosen.name == "hermes"
    assert chosen.reasoning_tags is None


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("<|start_header_id|>{{ message.content }}", "plain-without-tools"),
        ("{{ tools }}<start_of_turn>", "plain"),
        ("{{ tools }}[func_name1(param1=value1)]", "llama-pythonic"),
        ("{% if 'tools' in message %}{{ message['tools'] }}{% endif %}{{ message.tools }}", "plain-without-tools"),
    ],
)
def test_without_markers_of_calls_the_format_depends_on_the_mention_of_tools(template: str, name: str) -> None:
    assert recognize(template).name == name


@pytest.mark.parametrize(
    ("family", "prompt", "opened"),
    [
        ("hermes", "<|im_start|>assistant\n<think>\n", True),
        ("hermes", "<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("hermes", "<|im_start|>assistant\n", False),
        ("mistral", "[/INST][THINK]", True),
        ("plain", "<think>", False),
        ("harmony", "<|start|>assistant<|channel|>analysis<|message|>", True),
        ("harmony", "<|start|>assistant", False),
        ("muse", "<|start|>assistant to=self<|message|>", True),
        ("muse", "<|start|>assistant", False),
        ("apriel", "<|begin_assistant|>\nHere are my reasoning steps:\n", True),
    ],
)
def test_a_prompt_may_end_inside_reasoning(family: str, prompt: str, opened: bool) -> None:
    assert choose(TEMPLATES[family]).opens_thinking(prompt) is opened


@pytest.mark.parametrize("tag", ["<think>", "</think>"])
def test_a_template_may_have_only_one_of_the_tags_around_reasoning(tag: str) -> None:
    """Olmo 3 Think's begins each answer with the first one, LFM2.5's removes all before the last one."""
    assert choose(f"{{{{ tools }}}}{tag}").reasoning_tags == Tags("<think>", "</think>")


def test_tools_are_added_to_the_system_message_if_the_template_does_not_show_them() -> None:
    tool = Tool("get_weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
    for template in ("", "<start_of_turn>"):
        told = choose(template).instructions([tool])
        assert told is not None
        assert '"get_weather"' in told
        assert '"city"' in told
    assert choose("").instructions([]) is None
    assert choose("<start_of_turn>").instructions([]) is None


def test_the_message_about_tools_has_them_all_and_the_form_of_a_call() -> None:
    tools = [Tool("add", "Adds.", {"type": "object"}), Tool("now", None, {})]
    listed = (
        '{"name": "add", "description": "Adds.", "parameters": {"type": "object"}}\n{"name": "now", "parameters": {}}'
    )
    assert choose("").instructions(tools) == (
        f"You may call these functions:\n<tools>\n{listed}\n</tools>\nTo call one, answer with:\n"
        '<tool_call>\n{"name": <name>, "arguments": <arguments>}\n</tool_call>'
    )
    olmo = choose("<function_calls>").instructions(tools)
    assert olmo is not None
    assert olmo.endswith("\nTo call, answer with:\n<function_calls>name(argument=value)</function_calls>")
    assert choose("<start_of_turn>").instructions(tools) == (
        f"You may call these functions, described in JSON schema:\n{listed}\n"
        "To call, answer with a block of Python calls with keyword arguments, one on each line:\n"
        "```tool_code\nname(argument=value)\n```"
    )


@pytest.mark.parametrize(
    ("family", "form"),
    [
        ("deepseek", "<|tool▁call▁begin|>tool_call_name<|tool▁sep|>tool_call_arguments<|tool▁call▁end|>"),
        (
            "deepseek-typed",
            "<|tool▁call▁begin|>function<|tool▁sep|>tool_call_name\n```json\ntool_call_arguments\n```<|tool▁call▁end|>",
        ),
    ],
)
def test_the_tools_of_deepseek_are_described_where_its_template_does_not_show_them(family: str, form: str) -> None:
    template = TEMPLATES[family].replace("{{ tools }}", "")
    assert recognize(template).name == f"{family}-without-tools"
    chosen = choose(template)
    text = chosen.instructions([Tool("add", "Adds.", {"type": "object"}), Tool("now")])
    assert text is not None
    assert '### add\nDescription: Adds.\n\nParameters: {"type": "object"}\n\n### now' in text
    assert wide(f"<|tool▁calls▁begin|>{form}{{additional_tool_calls}}<|tool▁calls▁end|>") in text
    assert chosen.instructions([]) is None


@pytest.mark.parametrize("family", sorted(set(TEMPLATES) - {"gemma-3", "lfm2", "llama", "llama-pythonic"}))
def test_every_family_describes_the_tools_where_the_template_does_not_show_them(family: str) -> None:
    template = TEMPLATES[family].replace("{{ tools }}", "{{ message.tools }}")
    assert recognize(template).name == f"{family}-without-tools"
    text = choose(template).instructions([Tool("add", "Adds.", {"type": "object", "properties": {"x": {}}})])
    assert text is not None
    assert all(word in text for word in ("add", "Adds.", '"x"'))


def test_a_family_with_a_form_of_its_own_gets_no_other() -> None:
    template = TEMPLATES["mistral"].replace("{{ tools }}", "")
    text = choose(template).instructions([Tool("now", None, {})])
    assert text == 'You may call these functions:\n<tools>\n{"name": "now", "parameters": {}}\n</tools>'


@pytest.mark.parametrize(("template", "shown"), [("", False), ("</think>", True)])
def test_an_unknown_model_shows_control_tokens_if_it_reasons(template: str, shown: bool) -> None:
    assert choose(template).show_special is shown


@pytest.mark.parametrize("family", sorted(set(TEMPLATES) - {"gemma-3"}))
def test_a_template_that_shows_tools_gets_no_additional_message(family: str) -> None:
    assert choose(TEMPLATES[family]).instructions([Tool("now")]) is None
