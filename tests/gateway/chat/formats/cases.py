"""Texts in every family's markup, and their deltas."""

from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, ReasoningDelta
from tests.gateway.chat.formats.case import Case, wide, words
from tests.gateway.chat.formats.harmony_cases import HARMONY_CASES
from tests.gateway.chat.formats.muse_cases import MUSE_CASES
from tests.gateway.chat.formats.newer_cases import NEWER_CASES, NEWER_TEMPLATES
from tests.gateway.chat.formats.parsing import call, weather
from tests.gateway.chat.formats.slip_cases import SLIP_CASES
from tests.gateway.chat.formats.solar_cases import SOLAR_CASES
from tests.gateway.chat.formats.tagged_cases import TAGGED_CASES, TAGGED_TEMPLATES

TEMPLATES = {
    "hermes": "{{ tools }}<tool_call></tool_call><think></think>",
    "plain": "{{ tools }}<|user|>",
    "qwen-coder": "{{ tools }}<tool_call>\n<function=example><parameter=x></think>",
    "glm": "{{ tools }}<tool_call>{name}<arg_key></arg_key><arg_value></arg_value></think>",
    "llama": '{{ tools }}<|start_header_id|>{"name": function name, "parameters": {}}<|python_tag|>',
    "llama-pythonic": "{{ tools }}<|header_start|>[func_name1(param1=value1)]",
    "mistral": "{{ tools }}[TOOL_CALLS][ARGS][THINK][/THINK]",
    "mistral-listed": '{{ tools }}[TOOL_CALLS] [{"name": ""}]',
    "deepseek": wide("{{ tools }}<|tool▁calls▁begin|><|tool▁sep|></think>"),
    "deepseek-typed": wide("{{ tools }}<|tool▁calls▁begin|>function<|tool▁sep|>```json</think>"),
    "harmony": "{{ tools }}<|channel|>analysis",
    "solar": "{{ tools }}<|tool_calls|><|tool_call:begin|><|think|><|end|>",
    "muse": '{{ tools }}<atem:function_calls><atem:invoke name=""><|eom|>',
    "gemma-4": '{{ tools }}<|tool_call>call:<|"|><|channel>thought\n<channel|>',
    "function-gemma": "{{ tools }}<start_of_turn><start_function_call><escape>",
    "gemma-3": "<start_of_turn>",
    **NEWER_TEMPLATES,
    **TAGGED_TEMPLATES,
}


_HERMES_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
_OBJECT = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
_CODER_CALL = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
_GLM_CALL = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>"
_TYPED_CALL = '<|tool▁call▁begin|>function<|tool▁sep|>get_weather\n```json\n{"city": "Oslo"}\n```<|tool▁call▁end|>'

CASES = [
    *HARMONY_CASES,
    *MUSE_CASES,
    *SOLAR_CASES,
    *SLIP_CASES,
    words("hermes", "an answer", " It rains.\n\nBye.\n"),
    Case("hermes", "a call", _HERMES_CALL, weather()),
    Case(
        "hermes",
        "calls between the same tags",
        f"<tool_call>\n{_OBJECT}\n{_OBJECT}\n</tool_call>Bye.",
        [*weather(0), *weather(1), ContentDelta("Bye.")],
    ),
    Case(
        "hermes",
        "a list of calls",
        f"<tool_call>\n[{_OBJECT}, {_OBJECT}]\n</tool_call>Bye.",
        [*weather(0), *weather(1), ContentDelta("Bye.")],
    ),
    Case(
        "hermes",
        "a brace too few",
        f"<tool_call>\n{_OBJECT[:-1]}\n</tool_call>\n{_HERMES_CALL}",
        [*weather(0), *weather(1)],
    ),
    Case("hermes", "a brace too few, without arguments", '<tool_call>{"name": "now"</tool_call>', call(0, "now", "{}")),
    Case(
        "hermes",
        "a brace too many",
        f"<tool_call>\n{_OBJECT}}}\n</tool_call>\n{_HERMES_CALL}",
        [*weather(0), *weather(1)],
    ),
    Case(
        "hermes",
        "a second call of another tool",
        f'<tool_call>\n{_OBJECT}\n{{"name": "rm"}}\n</tool_call>',
        [*weather(0), ContentDelta('{"name": "rm"}\n</tool_call>')],
    ),
    Case(
        "hermes",
        "arguments in a string",
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}</tool_call>',
        weather(),
    ),
    *(
        Case(
            "hermes",
            f"arguments that are {text}",
            f'<tool_call>{{"name": "now", "arguments": {text}}}</tool_call>',
            call(0, "now", "{}"),
        )
        for text in ("null", '""', '"{}"')
    ),
    Case(
        "hermes",
        "thoughts, words and calls",
        f"<think>\nThe weather.\n</think>\n\nI look.\n{_HERMES_CALL}\n{_HERMES_CALL}\n",
        [ReasoningDelta("The weather."), ContentDelta("I look."), *weather(0), *weather(1)],
    ),
    Case(
        "hermes",
        "thoughts begun by the prompt",
        "\nHm.\n</think>\n\nYes.",
        [ReasoningDelta("Hm."), ContentDelta("Yes.")],
        True,
    ),
    Case(
        "hermes",
        "a call in thoughts",
        f"<think>Perhaps {_HERMES_CALL}?</think>Yes.",
        [ReasoningDelta("Perhaps"), *weather(), ContentDelta("?Yes.")],
    ),
    Case(
        "hermes",
        "no call in thoughts",
        '<think>A <tool_call> of {"name": <tool_call>{"name": "rm"}</tool_call></think>Yes.',
        [ReasoningDelta('A <tool_call> of {"name": <tool_call>{"name": "rm"}</tool_call>'), ContentDelta("Yes.")],
    ),
    Case("qwen-coder", "a call in thoughts", f"Hm.\n{_CODER_CALL}", [ReasoningDelta("Hm."), *weather()], True),
    Case(
        "glm",
        "a call in thoughts, and their end behind it",
        f"<think>Hm.{_GLM_CALL}</think>{_GLM_CALL}</think>",
        [ReasoningDelta("Hm."), *weather(0), *weather(1), ContentDelta("</think>")],
    ),
    Case(
        "hermes",
        "thoughts after whitespace, and further ones",
        "\n<think>Hm.</think>\n<think> So.</think>Yes.",
        [ReasoningDelta("Hm.So."), ContentDelta("Yes.")],
    ),
    Case(
        "hermes",
        "a tag named after a call",
        f"{_HERMES_CALL}<think>No.</think>",
        [*weather(), ContentDelta("<think>No.</think>")],
    ),
    Case("hermes", "thoughts without an end", "<think>Hm.\n", [ReasoningDelta("Hm.")]),
    Case("hermes", "no thoughts", "<think>\n\n</think>\n\nYes.", [ContentDelta("Yes.")]),
    Case("hermes", "no thoughts, nor whitespace", "\n<think></think>\nYes.", [ContentDelta("Yes.")]),
    Case("hermes", "no thoughts begun by the prompt", "</think>\n\nYes.", [ContentDelta("Yes.")], True),
    words("hermes", "a tag named later", "The <think> tag."),
    Case(
        "hermes",
        "the name last, other members, no space",
        '<tool_call>{"id":"1","arguments":{"city":"Oslo"},"name":"get_weather","type":"function"}</tool_call>',
        call(0, "get_weather", '{"city":"Oslo"}'),
    ),
    Case(
        "hermes",
        "whitespace between tokens, further members",
        '<tool_call> { "name" : "get_weather" , "arguments" : {"city": "Oslo"} , "arguments": {}, "tool_name": 1}'
        "</tool_call>",
        weather(),
    ),
    *(
        words("hermes", f"no call: {text}", f"<tool_call>{text}</tool_call>")
        for text in (
            '{"arguments": {}}',
            "{ }",
            '{"name": "now", "arguments": "x"}',
            '{"name": "now", "x": 1}',
            '{"arguments": [], "name": "now"}',
            '{"name": "now", "arguments": "[]"}',
            '{"name": "now", "arguments": nil}',
            '{"arguments": {}, "parameters": {}, "name": "now"}',
        )
    ),
    Case("hermes", "no arguments", '<tool_call>{"name": "now"}</tool_call>', call(0, "now", "{}")),
    Case(
        "hermes",
        "all of JSON",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "\\u00d8 \\"\\\\/\\n", "days": -1.5e+3, '
        '"tags": [true, null, [], {}, {"a": [0]}]}}</tool_call>',
        call(
            0,
            "get_weather",
            '{"city": "\\u00d8 \\"\\\\/\\n", "days": -1.5e+3, "tags": [true, null, [], {}, {"a": [0]}]}',
        ),
    ),
    Case(
        "hermes",
        "slips that can be mended",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "a\nb\\d\\\'\\u12x"}}</tool_call>',
        call(0, "get_weather", '{"city": "a\\nb\\\\d\'\\\\u12x"}'),
    ),
    Case(
        "hermes",
        "a comma behind the last member",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", "tags": ["a" , ], }}</tool_call>',
        call(0, "get_weather", '{"city": "Oslo", "tags": ["a"  ] }'),
    ),
    words("hermes", "another tool", 'See <tool_call>\n{"name": "delete", "arguments": {}}\n</tool_call> there'),
    words("hermes", "no JSON", "<tool_call>\nget_weather(Oslo)\n</tool_call>\n"),
    Case(
        "hermes",
        "a call behind one that is none",
        f"<tool_call><tool_call>{_HERMES_CALL}",
        [ContentDelta("<tool_call><tool_call>"), *weather()],
    ),
    Case(
        "hermes",
        "arguments that break",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", days}}</tool_call> Sorry.',
        [*call(0, "get_weather", '{"city": "Oslo", '), ContentDelta("days}}</tool_call> Sorry.")],
    ),
    Case(
        "hermes",
        "a number that is none",
        '<tool_call>{"name": "get_weather", "arguments": {"days": 1-2}}</tool_call>',
        [*call(0, "get_weather", '{"days": '), ContentDelta("1-2}}</tool_call>")],
    ),
    Case(
        "hermes",
        "cut short",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", "days": 1',
        call(0, "get_weather", '{"city": "Oslo", "days": 1'),
    ),
    *(
        Case(
            "hermes",
            f"cut short in {cut}",
            f'<tool_call>{{"name": "get_weather", "arguments": {{"city": {shown}{cut}',
            call(0, "get_weather", f'{{"city": {shown}'),
        )
        for shown, cut in (('"a', "\\"), ('"a', "\\u00"), ("", "tru"))
    ),
    words("hermes", "cut short before it begins", '<tool_call>{"name": "get_w'),
    Case("hermes", "cut short in its end", f"{_HERMES_CALL[:-3]}", weather()),
    Case("hermes", "no end", f"{_HERMES_CALL[:-12]}Bye.", [*weather(), ContentDelta("Bye.")]),
    Case("plain", "a call", _HERMES_CALL, weather()),
    words("plain", "no thoughts", "<think>\nHm.\n</think>"),
    Case("qwen-coder", "a call", f"I look.\n{_CODER_CALL}", [ContentDelta("I look."), *weather()]),
    Case("qwen-coder", "calls", f"{_CODER_CALL}\n{_CODER_CALL}", [*weather(0), *weather(1)]),
    Case("qwen-coder", "no arguments", "<tool_call>\n<function=now>\n</function>\n</tool_call>", call(0, "now", "{}")),
    Case(
        "qwen-coder",
        "values by their types, without outer tags",
        '<function=get_weather>\n<parameter=city>\n\n5 "km"\n</p>\n\n</parameter>\n<parameter=days>\n5\n</parameter>\n'
        "<parameter=exact>\nTrue\n</parameter><parameter=tags>['a', \"b\"]</parameter>\n</function>",
        call(0, "get_weather", '{"city": "\\n5 \\"km\\"\\n</p>\\n", "days": 5, "exact": true, "tags": ["a", "b"]}'),
    ),
    Case(
        "qwen-coder",
        "a value of another type, an unknown argument",
        "<function=get_weather>\n<parameter=days>\nmany\n</parameter>\n<parameter=x>\n{}\n</parameter>\n</function>",
        call(0, "get_weather", '{"days": "many", "x": {}}'),
    ),
    Case(
        "qwen-coder",
        "broken",
        "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\noops</function>",
        [*call(0, "get_weather", '{"city": "Oslo"'), ContentDelta("oops</function>")],
    ),
    Case(
        "qwen-coder",
        "no end of the call",
        _CODER_CALL.replace("</function>\n", "") + _CODER_CALL,
        [*weather(0), *weather(1)],
    ),
    Case(
        "qwen-coder",
        "arguments without values",
        "<function=get_weather>\n<parameter=days>\n</parameter>\n<parameter=city>\n</parameter>\n<parameter=tags></parameter>\n</function>",
        call(0, "get_weather", '{"city": ""}'),
    ),
    Case("qwen-coder", "cut short", _CODER_CALL.partition("lo\n")[0], call(0, "get_weather", '{"city": "Os')),
    words("qwen-coder", "another tool", "<function=rm>\n</function>"),
    Case(
        "glm",
        "a call",
        f"<think>Hm.</think>\nI look.\n{_GLM_CALL}",
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather()],
    ),
    Case("glm", "calls on one line", _GLM_CALL.replace("\n", "") * 2, [*weather(0), *weather(1)]),
    Case(
        "glm",
        "no end before the next call",
        _GLM_CALL.partition("</tool_call>")[0] + _GLM_CALL,
        [*weather(0), *weather(1)],
    ),
    Case(
        "glm",
        "an argument without a value",
        "<tool_call>get_weather<arg_key>days</arg_key><arg_value></arg_value></tool_call>",
        call(0, "get_weather", "{}"),
    ),
    Case("glm", "no arguments", "<tool_call>now\n</tool_call>", call(0, "now", "{}")),
    Case(
        "glm",
        "values by their types",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>\n5\n</arg_value>\n<arg_key>days</arg_key>\n"
        '<arg_value>5</arg_value>\n<arg_key>tags</arg_key>\n<arg_value>["a"]</arg_value>\n</tool_call>',
        call(0, "get_weather", '{"city": "\\n5\\n", "days": 5, "tags": ["a"]}'),
    ),
    words("glm", "another tool", "<tool_call>rm\n</tool_call>"),
    Case("llama", "a call", '{"name": "get_weather", "parameters": {"city": "Oslo"}}', weather()),
    Case(
        "llama",
        "calls",
        '\n{"name": "get_weather", "parameters": {"city": "Oslo"}}; {"name": "now", "parameters": {}}',
        [*weather(), *call(1, "now", "{}")],
    ),
    Case(
        "llama",
        "a call behind words",
        'I look.<|python_tag|>{"name": "get_weather", "parameters": {"city": "Oslo"}}',
        [ContentDelta("I look."), *weather()],
    ),
    Case("llama", "Python", '<|python_tag|>get_weather.call(city="Oslo")', weather()),
    words("llama", "code", "<|python_tag|>print(1)"),
    words("llama", "an answer in JSON", '{"name": "Ann", "age": 3}'),
    words("llama", "a list", "[1, 2]"),
    words("llama", "a list of objects", '[{"name": "Ann"}]'),
    Case(
        "llama",
        "calls in a list",
        '[{"name": "get_weather", "parameters": {"city": "Oslo"}}, {"name": "now", "parameters": {}}]',
        [*weather(), *call(1, "now", "{}")],
    ),
    words("llama", "JSON behind words", 'So: {"name": "now"}'),
    Case(
        "llama",
        "words behind a call",
        '{"name": "now", "parameters": {}}, that is it.',
        [*call(0, "now", "{}"), ContentDelta(", that is it.")],
    ),
    Case(
        "llama-pythonic",
        "calls",
        "[get_weather(city='O\\'s\"lo', days=-2, exact=True, tags=[None, {'a': 1}]), now()]",
        [
            *call(0, "get_weather", '{"city": "O\'s\\"lo", "days": -2, "exact": true, "tags": [null, {"a": 1}]}'),
            *call(1, "now", "{}"),
        ],
    ),
    Case(
        "llama-pythonic",
        "calls between tags",
        "I look.<|python_start|>[get_weather(city='Oslo'), now()]<|python_end|>",
        [ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
    ),
    Case(
        "llama-pythonic",
        "JSON between tags",
        '<|python_start|>{"name": "now", "parameters": {}}<|python_end|>Bye.',
        [*call(0, "now", "{}"), ContentDelta("Bye.")],
    ),
    words("llama-pythonic", "another tool", "[rm(path='/')]"),
    Case(
        "llama-pythonic",
        "broken",
        "[get_weather(city='Oslo', 7)]",
        [*call(0, "get_weather", '{"city": "Oslo"'), ContentDelta("7)]")],
    ),
    Case(
        "mistral",
        "thoughts and calls",
        '[THINK]Hm.[/THINK]I look.[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]now[CALL_ID]x1[ARGS]{}',
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
    ),
    Case("mistral", "no mark of arguments", '[TOOL_CALLS]get_weather{"city": "Oslo"}', weather()),
    words("mistral", "another tool", "[TOOL_CALLS]rm[ARGS]{}"),
    Case(
        "mistral-listed",
        "calls",
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "a1"}, '
        '{"name": "now", "arguments": {}}]',
        [*weather(), *call(1, "now", "{}")],
    ),
    Case(
        "mistral-listed",
        "the second is another tool's",
        '[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "rm", "arguments": {}}]',
        [*call(0, "now", "{}"), ContentDelta(', {"name": "rm", "arguments": {}}]')],
    ),
    Case(
        "deepseek",
        "calls",
        wide(
            'I look.<|tool▁calls▁begin|><|tool▁call▁begin|>get_weather<|tool▁sep|>{"city": "Oslo"}<|tool▁call▁end|>'
            "<|tool▁call▁begin|>now<|tool▁sep|>{}<|tool▁call▁end|><|tool▁calls▁end|>"
        ),
        [ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
    ),
    Case(
        "deepseek-typed",
        "thoughts and calls",
        wide(f"Hm.\n</think>\n\n<|tool▁calls▁begin|>{_TYPED_CALL}\n{_TYPED_CALL}<|tool▁calls▁end|>"),
        [ReasoningDelta("Hm."), *weather(0), *weather(1)],
        True,
    ),
    Case("deepseek-typed", "no frame around the call", wide(_TYPED_CALL), weather()),
    words("deepseek", "another tool", wide("<|tool▁calls▁begin|><|tool▁call▁begin|>rm<|tool▁sep|>{}<|tool▁call▁end|>")),
    Case(
        "gemma-4",
        "backslashes",
        '<|tool_call>call:get_weather{city:<|"|>C:\\new"<|"|>}<tool_call|>',
        call(0, "get_weather", '{"city":"C:\\\\new\\""}'),
    ),
    Case(
        "llama-pythonic",
        "an argument without a name",
        '[get_weather("Oslo")]',
        [*call(0, "get_weather", "{"), ContentDelta('"Oslo")]')],
    ),
    words("glm", "words after a name", "<tool_call>now is it"),
    words("glm", "cut short before it begins", "<tool_call>now"),
    Case(
        "llama-pythonic",
        "codes of characters",
        r"[get_weather(city='\x4fsl\u006f\x\U0001f600\U0000006f\U00110000\Users')]",
        call(0, "get_weather", r'{"city": "\u004fsl\u006f\\x😀\u006f\\U00110000\\Users"}'),
    ),
    Case(
        "gemma-4",
        "thoughts and calls",
        '<|channel>thought\nHm.\n<channel|>I look.<|tool_call>call:get_weather{city:<|"|>O\'{s}"lo<|"|>,days:3,'
        'tags:[<|"|>a<|"|>,{b:null}]}<tool_call|><|tool_call>call:now{}<tool_call|>',
        [
            ReasoningDelta("Hm."),
            ContentDelta("I look."),
            *call(0, "get_weather", '{"city":"O\'{s}\\"lo","days":3,"tags":["a",{"b":null}]}'),
            *call(1, "now", "{}"),
        ],
    ),
    Case(
        "gemma-4",
        "strings without their first marker",
        '<|tool_call>call:get_weather{city:Oslo, "N"<|"|>,tags:[a{1<|"|>],days:5}<tool_call|>',
        call(0, "get_weather", '{"city":"Oslo, \\"N\\"","tags":["a{1"],"days":5}'),
    ),
    Case(
        "gemma-4",
        "other quotes, and other signs behind names",
        """<|tool_call>call:get_weather{city='O"slo',tags=["a",'b'],"days":5}<tool_call|>""",
        call(0, "get_weather", '{"city":"O\\"slo","tags":["a","b"],"days":5}'),
    ),
    Case(
        "gemma-4",
        "a string without markers",
        '<|tool_call>call:get_weather{city:Oslo}<tool_call|>So: <|"|>',
        [*call(0, "get_weather", '{"city":'), ContentDelta('Oslo}<tool_call|>So: <|"|>')],
    ),
    Case(
        "gemma-4",
        "cut short in a string without its first marker",
        "<|tool_call>call:get_weather{city:Os lo",
        call(0, "get_weather", '{"city":'),
    ),
    words("gemma-4", "another tool", "<|tool_call>call:rm{}<tool_call|>"),
    Case(
        "function-gemma",
        "a call",
        "<start_function_call>call:get_weather{city:<escape>Oslo<escape>}<end_function_call>",
        call(0, "get_weather", '{"city":"Oslo"}'),
    ),
    Case(
        "function-gemma",
        "broken",
        "<start_function_call>call:get_weather{city:Oslo}<end_function_call>",
        [*call(0, "get_weather", '{"city":'), ContentDelta("Oslo}<end_function_call>")],
    ),
    Case(
        "gemma-3",
        "a call",
        "I look.\n```tool_code\nget_weather(city='Oslo')\n```",
        [ContentDelta("I look."), *weather()],
    ),
    Case("gemma-3", "a call on several lines", "```tool_code\nget_weather(\n    city='Oslo',\n)\n```", weather()),
    Case(
        "gemma-3",
        "triple quotes",
        '```tool_code\nget_weather(city="""O"s\nl\\\\o""", tags=[\'\', "", \'\'\'\'\'\'])\n```',
        call(0, "get_weather", '{"city": "O\\"s\\nl\\\\o", "tags": ["", "", ""]}'),
    ),
    Case("gemma-3", "calls", "```tool_code\nnow()\nnow()\n```", [*call(0, "now", "{}"), *call(1, "now", "{}")]),
    words("gemma-3", "other code", "```tool_code\nprint(1)\n```"),
    Case(
        "gemma-3",
        "cut short in a name",
        "```tool_code\nget_weather(ci",
        [CallBegan(0, "get_weather"), CallArguments(0, "{")],
    ),
    *NEWER_CASES,
    *TAGGED_CASES,
]
