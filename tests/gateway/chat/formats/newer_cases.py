"""Texts in the markup of the newest families: tags around each argument, and sections of calls."""

from gateway.chat.deltas import ContentDelta, ReasoningDelta
from tests.gateway.chat.formats.case import Case, wide, words
from tests.gateway.chat.formats.parsing import call, weather

_DSML = "{{ tools }}{% set dsml_token = '" + wide("|DSML|") + "' %}{{ '<' + dsml_token + '"
NEWER_TEMPLATES = {
    "dsml-functions": _DSML + "function_calls>' }}<think></think>",
    "dsml": _DSML + "tool_calls>' }}<think></think>",
    "minimax": "{{ tools }}<minimax:tool_call><invoke name=><think></think>",
    "seed": "{{ tools }}<seed:tool_call><function=example><parameter=x><seed:think></seed:think>",
    "functionary": "{{ tools }}<function=example_function_name>",
    "functionary-3.2": "{{ tools }}<|start_header_id|>>>>${recipient}>>>all",
    "cohere": "{{ tools }}<|START_ACTION|><|START_THINKING|><|END_THINKING|>",
    "gigachat": "{{ tools }}<|role_sep|><|message_sep|><|function_call|>",
    "gigachat-3": "{{ tools }}<|role_sep|><|message_sep|>",
    "nemotron": "{{ tools }}<TOOLCALL>[</TOOLCALL><think></think>",
    "apriel": "{{ tools }}<tool_calls>[]</tool_calls> after the marker [BEGIN FINAL RESPONSE]",
    "granite": "{{ tools }}<|tool_call|><think></think>",
    "lfm2": "List of tools: <|tool_list_start|>[{{ tools }}]<|tool_list_end|>",
    "apertus": "{{ tools }}<|tools_prefix|><|tools_suffix|><|inner_prefix|><|inner_suffix|>",
    "olmo": "{{ tools }}<functions></functions><function_calls></function_calls><think>",
    "kimi": "{{ tools }}<|tool_calls_section_begin|><think></think>",
}

_SEED_CALL = (
    "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n</function>\n</seed:tool_call>"
)
_INVOKE = '<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n</invoke>'
_NOW = '<invoke name="now">\n</invoke>'
_KIMI_CALL = '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|>'
_KIMI_NOW = "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"


def _kimi(*calls: str) -> str:
    return f"<|tool_calls_section_begin|>{''.join(calls)}<|tool_calls_section_end|>"


def _minimax(*calls: str) -> str:
    return "\n".join(("<minimax:tool_call>", *calls, "</minimax:tool_call>"))


def _dsml(*lines: str) -> str:
    """Return a block of calls, with a `~` in place of the token inside tags."""
    return "\n".join(("<~function_calls>", *lines, "</~function_calls>")).replace("~", wide("|DSML|"))


_DSML_CALL = ('<~invoke name="get_weather">', '<~parameter name="city" string="true">Oslo</~parameter>', "</~invoke>")
_DSML_NOW = ('<~invoke name="now">', "</~invoke>")

NEWER_CASES = [
    Case(
        "dsml-functions",
        "thoughts and calls",
        f"Hm.</think>I look.\n\n{_dsml(*_DSML_CALL, *_DSML_NOW)}",
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
        True,
    ),
    Case(
        "dsml-functions",
        "a call in thoughts",
        f"<think>Hm.\n\n{_dsml(*_DSML_CALL)}",
        [ReasoningDelta("Hm."), *weather()],
    ),
    Case(
        "dsml-functions",
        "values by their types, whatever the tag declares",
        _dsml(
            '<~invoke name="get_weather">',
            '<~parameter name="city" string="false">5</~parameter>',
            '<~parameter name="days" string="true">5</~parameter>',
            '<~parameter name="tags" string="false">["a"]</~parameter>',
            '<~parameter name="x" string="true">5</~parameter>',
            '<~parameter name="y" string="false">{"a": [1]}</~parameter>',
            "</~invoke>",
        ),
        call(0, "get_weather", '{"city": "5", "days": 5, "tags": ["a"], "x": "5", "y": {"a": [1]}}'),
    ),
    Case("dsml-functions", "no end of the block", _dsml(*_DSML_CALL).rpartition("\n")[0], weather()),
    words("dsml-functions", "another tool", _dsml('<~invoke name="rm">', "</~invoke>")),
    Case("dsml", "a call", _dsml(*_DSML_CALL).replace("function_calls", "tool_calls"), weather()),
    Case(
        "minimax",
        "thoughts and calls",
        f"Hm.\n</think>\n\nI look.\n{_minimax(_INVOKE, _NOW)}",
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
        True,
    ),
    Case(
        "minimax",
        "values by their types, text that looks like tags",
        _minimax(
            '<invoke name="get_weather">',
            '<parameter name="city">\n<invoke name="now">\n"Oslo"</invoke>\n<minimax:tool_call></parameter>',
            '<parameter name="days">5</parameter>',
            '<parameter name="tags">["a", {"b": null}]</parameter>',
            "</invoke>",
        ),
        call(
            0,
            "get_weather",
            '{"city": "\\n<invoke name=\\"now\\">\\n\\"Oslo\\"</invoke>\\n<minimax:tool_call>", "days": 5, '
            '"tags": ["a", {"b": null}]}',
        ),
    ),
    words("minimax", "an invocation in prose", 'An <invoke name="x"> tag.'),
    Case("minimax", "cut short", _minimax(_INVOKE).partition("lo<")[0], call(0, "get_weather", '{"city": "Os')),
    Case(
        "seed",
        "thoughts and calls",
        f"<seed:think>Hm.</seed:think>\n{_SEED_CALL}\n{_SEED_CALL}",
        [ReasoningDelta("Hm."), *weather(0), *weather(1)],
    ),
    Case(
        "qwen-coder",
        "text that looks like tags",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n"
        "<parameter=x>\n</parameter>\n</function>\n</tool_call>",
        call(0, "get_weather", '{"city": "<tool_call>\\n<function=now>\\n</function>\\n</tool_call>\\n<parameter=x>"}'),
    ),
    Case(
        "kimi",
        "thoughts and calls",
        f"<think>Hm.</think>I look.{_kimi(_KIMI_CALL, _KIMI_NOW)}",
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
    ),
    Case("kimi", "a call in thoughts", f"<think>Hm.{_kimi(_KIMI_CALL)}", [ReasoningDelta("Hm."), *weather()]),
    Case(
        "kimi",
        "a marker in thoughts",
        "<think>Hm. <|tool_call_begin|>functions.rm:0 no.</think>Yes.",
        [ReasoningDelta("Hm. <|tool_call_begin|>functions.rm:0 no."), ContentDelta("Yes.")],
    ),
    Case("kimi", "no frame, and only a name", _KIMI_CALL.replace("functions.", "").replace(":0", ""), weather()),
    Case(
        "kimi",
        "markers in a string",
        _kimi(_KIMI_CALL.replace("Oslo", "<|tool_call_end|><|tool_call_begin|>functions.now:1")),
        weather(city="<|tool_call_end|><|tool_call_begin|>functions.now:1"),
    ),
    words("kimi", "another tool", _kimi(_KIMI_NOW.replace("now", "rm"))),
    Case(
        "nemotron",
        "calls",
        '<think>Hm.</think><TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Oslo"}}, {"name": "now", '
        '"arguments": {}}]</TOOLCALL>',
        [ReasoningDelta("Hm."), *weather(), *call(1, "now", "{}")],
    ),
    Case(
        "apriel",
        "calls",
        'I look.\n<tool_calls>[{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "x"}]</tool_calls>',
        [ContentDelta("I look."), *weather()],
    ),
    Case(
        "apriel",
        "thoughts, and an answer between marks",
        "Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nYes.\n[END FINAL RESPONSE]",
        [ReasoningDelta("Hm."), ContentDelta("Yes.\n")],
    ),
    Case(
        "apriel",
        "thoughts begun by the prompt",
        "Hm.\n[BEGIN FINAL RESPONSE]\nYes.",
        [ReasoningDelta("Hm."), ContentDelta("Yes.")],
        True,
    ),
    Case(
        "olmo",
        "thoughts, words and calls",
        'Hm.</think>I look.\n<function_calls>get_weather(city="Oslo")\nnow()</function_calls>',
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
        True,
    ),
    Case(
        "olmo",
        "calls on their own lines, and values of JSON",
        "<function_calls>\nget_weather(city='Oslo', exact=true)\n</function_calls>\n",
        call(0, "get_weather", '{"city": "Oslo", "exact": true}'),
    ),
    words("olmo", "another tool", "<function_calls>rm()</function_calls>"),
    Case("olmo", "cut short", '<function_calls>get_weather(city="Os', call(0, "get_weather", '{"city": "Os')),
    Case("granite", "a call", '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Oslo"}}]', weather()),
    Case(
        "granite",
        "a call behind a text",
        '<tool_call>[{"name": "get_weather", "arguments": {"city": "Oslo"}}]',
        weather(),
    ),
    Case(
        "granite",
        "thoughts, and an answer between tags",
        "<think>Hm.</think>\n<response>Use <response> here.</response>",
        [ReasoningDelta("Hm."), ContentDelta("Use <response> here.")],
    ),
    Case(
        "granite",
        "a call in an answer between tags",
        '<response>I look.<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Oslo"}}]',
        [ContentDelta("I look."), *weather()],
    ),
    Case(
        "granite",
        "an answer that names tags",
        "Use <response>a</response>.",
        [ContentDelta("Use <response>a</response>.")],
    ),
    Case(
        "lfm2",
        "calls",
        'I look.<|tool_call_start|>[get_weather(city="Oslo", days=None, exact=true), now()]<|tool_call_end|>Bye.',
        [
            ContentDelta("I look."),
            *call(0, "get_weather", '{"city": "Oslo", "days": null, "exact": true}'),
            *call(1, "now", "{}"),
            ContentDelta("Bye."),
        ],
    ),
    Case(
        "lfm2",
        "a call in JSON",
        '<|tool_call_start|>[{"name": "get_weather", "arguments": {"city": "Oslo"}}]<|tool_call_end|>',
        weather(),
    ),
    Case(
        "apertus",
        "thoughts and calls",
        '<|inner_prefix|>Hm.<|tools_prefix|><|inner_suffix|><|tools_prefix|>[{"get_weather": {"city": "Oslo"}}, '
        '{"now": {}}]<|tools_suffix|>',
        [ReasoningDelta("Hm.<|tools_prefix|>"), *weather(), *call(1, "now", "{}")],
    ),
    words("apertus", "another tool", '<|tools_prefix|>[{"rm": {}}]<|tools_suffix|>'),
    words("lfm2", "another tool", "<|tool_call_start|>[rm()]"),
    Case(
        "functionary",
        "words and calls",
        'I look.<function=get_weather>{"city": "Oslo"}</function><function=now>{}</function>',
        [ContentDelta("I look."), *weather(0), *call(1, "now", "{}")],
    ),
    words("functionary", "another tool", "<function=rm>{}</function>"),
    Case(
        "functionary-3.2",
        "words and calls",
        'all\nI look.>>>get_weather\n{"city": "Oslo"}>>>now\n{}',
        [ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
    ),
    Case("functionary-3.2", "a call", 'get_weather\n{"city": "Oslo"}', weather()),
    Case("functionary-3.2", "an answer", "all\n It rains.\nall\n", [ContentDelta(" It rains.\nall\n")]),
    words("functionary-3.2", "an answer that goes on", "allowed >>> is\n"),
    Case("functionary-3.2", "two answers", "all\nOne.>>>all\nTwo.", [ContentDelta("One.\n\nTwo.")]),
    Case(
        "functionary-3.2",
        "markers in a string, words behind a call",
        'get_weather\n{"city": ">>>now\\n{}"}\n>>>all\nI look.',
        [*weather(city=">>>now\\n{}"), ContentDelta("I look.")],
    ),
    words("functionary-3.2", "a recipient without arguments", "now\nHello"),
    words("functionary-3.2", "another tool", "rm\n{}"),
    Case("functionary-3.2", "another tool later", "all\nSo:>>>rm\n{}", [ContentDelta("So:>>>rm\n{}")]),
    Case("functionary-3.2", "cut short", 'get_weather\n{"city": "Os', call(0, "get_weather", '{"city": "Os')),
    Case(
        "functionary-3.2",
        "broken",
        'get_weather\n{"city": "Oslo", days}>>>now\n{}',
        [*call(0, "get_weather", '{"city": "Oslo", '), ContentDelta("days}"), *call(1, "now", "{}")],
    ),
    Case(
        "cohere",
        "thoughts and calls",
        "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n"
        '    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Oslo"}},\n'
        '    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
        [ReasoningDelta("Hm."), *weather(0), *call(1, "now", "{}")],
    ),
    Case("cohere", "an answer", "<|START_RESPONSE|>Yes.<|END_RESPONSE|>", [ContentDelta("Yes.")]),
    Case(
        "cohere",
        "thoughts begun by the prompt, and an answer",
        "Hm.<|END_THINKING|><|START_TEXT|>Yes.<|END_TEXT|>",
        [ReasoningDelta("Hm."), ContentDelta("Yes.")],
        True,
    ),
    words("cohere", "another tool", '<|START_ACTION|>[{"tool_name": "rm"}]<|END_ACTION|>'),
    Case(
        "gigachat",
        "words and a call",
        'I look.<|function_call|>{"name": "get_weather", "arguments": {"city": "Oslo"}}',
        [ContentDelta("I look."), *weather()],
    ),
    Case(
        "gigachat-3",
        "words and a call",
        'I look.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}',
        [ContentDelta("I look."), *weather()],
    ),
]
