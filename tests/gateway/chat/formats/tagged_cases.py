"""Texts in the markup of MiniCPM5, Kimi K3, MiniMax M3 and Hunyuan, and their deltas."""

import re

from gateway.chat.deltas import ContentDelta, ReasoningDelta
from tests.gateway.chat.formats.case import Case, words
from tests.gateway.chat.formats.parsing import call, weather

TAGGED_TEMPLATES = {
    "minimax-m3": "{{ tools }}]<]minimax[>[<tool_call><invoke name=><mm:think></mm:think>",
    "minicpm": '{{ tools }}<function name="f"><param name="x">value</param></function><tool_sep><think></think>',
    "kimi-k3": "{{ tools }}{{ '<|open|>' + tag + '<|sep|>' }}",
    "hunyuan": "{{ tools }}<tool_calls><tool_call>name<tool_sep><arg_key></arg_key><arg_value></arg_value></think>",
    "hunyuan-open": "{{ tools }}{% set suffix = ':opensource' %}{{ '<tool_call{}>'.format(suffix) }}",
}

_MINICPM_CALL = '<function name="get_weather"><param name="city">Oslo</param></function>'
_M3_CALL = '<invoke name="get_weather"><city>Oslo</city></invoke>'
_M3_NOW = '<invoke name="now"></invoke>'
_K3_CALL = (
    '<|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Oslo'
    "<|close|>argument<|sep|><|close|>call<|sep|>"
)
_K3_NOW = '<|open|>call tool="now" index="2"<|sep|><|close|>call<|sep|>'
_K3_END = "<|close|>message<|sep|>"


def _m3(*lines: str) -> str:
    """Return a block of calls, with the token before each tag."""
    return _m3_tags("\n".join(("<tool_call>", *lines, "</tool_call>")))


def _m3_tags(text: str) -> str:
    return text.replace("<", "]<]minimax[>[<")


_HUNYUAN_CALL = "<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>"
_HUNYUAN_NOW = "<tool_call>now<tool_sep>\n</tool_call>"


def _hunyuan(*calls: str) -> str:
    return "\n".join(("<tool_calls>", *calls, "</tool_calls>"))


def _open(text: str) -> str:
    """Return a text with the tags of Hunyuan's final models."""
    return re.sub(r"(</?\w+)>", r"\1:opensource>", text)


def _response(text: str) -> str:
    return f"<|open|>response<|sep|>{text}<|close|>response<|sep|>"


def _kimi_k3(*calls: str) -> str:
    return f"<|open|>tools<|sep|>{''.join(calls)}<|close|>tools<|sep|>"


def _argument(name: str, type_: str, value: str) -> str:
    return f'<|open|>argument key="{name}" type="{type_}"<|sep|>{value}<|close|>argument<|sep|>'


TAGGED_CASES = [
    Case(
        "minimax-m3",
        "thoughts, words and calls",
        f"<mm:think>Hm.</mm:think>I look.{_m3(_M3_CALL, _M3_NOW)}",
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
    ),
    Case("minimax-m3", "no thoughts", "</mm:think>Yes.", [ContentDelta("Yes.")]),
    Case(
        "minimax-m3",
        "thoughts begun by the prompt",
        "Hm.</mm:think>Yes.",
        [ReasoningDelta("Hm."), ContentDelta("Yes.")],
        True,
    ),
    Case(
        "minimax-m3",
        "nested values by their types",
        _m3(
            '<invoke name="get_weather">\n<days>5</days><exact>true</exact>',
            "<tags> <item>5</item> <item></item></tags><x><item>5</item><item><a>b</a></item></x><y>",
            "</y><z><item>5</item><b></b></z></invoke>",
        ),
        call(
            0,
            "get_weather",
            '{"days": 5, "exact": true, "tags": ["5", ""], "x": [5, {"a": "b"}], "y": "\\n", "z": [5, ""]}',
        ),
    ),
    Case(
        "minimax-m3",
        "nested values in JSON, and none",
        _m3('<invoke name="get_weather"><tags>["5"]</tags><x>{"a": 1}</x><days></days></invoke>'),
        call(0, "get_weather", '{"tags": ["5"], "x": {"a": 1}, "days": ""}'),
    ),
    Case(
        "minimax-m3",
        "text that looks like tags",
        _m3(_M3_CALL.replace("Oslo", '<invoke name="now">\n<item>"</item></invoke>')),
        weather(city=_m3_tags('<invoke name=\\"now\\">\\n<item>\\"</item></invoke>')),
    ),
    words("minimax-m3", "another tool", _m3(_M3_NOW.replace("now", "rm"))),
    Case("minimax-m3", "cut short", _m3(_M3_CALL).partition("lo]")[0], call(0, "get_weather", '{"city": "Os')),
    Case(
        "minimax-m3",
        "cut short in an item",
        _m3(_M3_CALL.replace("city", "tags").replace("Oslo", "<item>Oslo")).partition("lo]")[0],
        call(0, "get_weather", '{"tags": ["Os'),
    ),
    Case(
        "minimax-m3",
        "an argument that ends twice",
        _m3(_M3_CALL.replace("</city>", "</city></city>")),
        [*call(0, "get_weather", '{"city": "Oslo"'), ContentDelta(_m3_tags("</city></invoke>\n</tool_call>"))],
    ),
    Case(
        "minimax-m3",
        "an item that has another's end",
        _m3(_M3_CALL.replace("city", "tags").replace("Oslo", "<item>Oslo</item></x>")),
        [
            *call(0, "get_weather", '{"tags": ["Oslo", '),
            ContentDelta("/x>" + _m3_tags("</tags></invoke>\n</tool_call>")),
        ],
    ),
    Case(
        "minicpm",
        "thoughts and calls",
        f'Hm.\n</think>\n\nI look.\n{_MINICPM_CALL}\n<function name="now"></function>\n',
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
        True,
    ),
    Case(
        "minicpm",
        "values by their types, text that looks like tags",
        '<function name="get_weather">\n'
        '<param name="city"><![CDATA[\n</param><function name="now">\n]]></p]]></param>\n'
        '<param name="days">5</param><param name="exact">True</param>'
        '<param name="tags"><![CDATA[[\'<a>\']]]></param><param name="x"><![CDATA[5]]></param>'
        '<param name="y">5</param></function>',
        call(
            0,
            "get_weather",
            '{"city": "\\n</param><function name=\\"now\\">\\n]]></p", "days": 5, "exact": true, "tags": ["<a>"], '
            '"x": "5", "y": 5}',
        ),
    ),
    words("minicpm", "a tag in prose", 'A <function name="f"> tag.'),
    Case("minicpm", "no tags around markup", _MINICPM_CALL.replace("Oslo", "a & <b>\n"), weather(city="a & <b>\\n")),
    words("minicpm", "another tool", 'So: <function name="rm"><param name="x">1</param></function>'),
    Case("minicpm", "cut short", _MINICPM_CALL.partition("lo<")[0], call(0, "get_weather", '{"city": "Os')),
    Case(
        "minicpm",
        "cut short in further tags",
        _MINICPM_CALL.replace("Oslo", "<![CDATA[Oslo]]").partition("</par")[0],
        call(0, "get_weather", '{"city": "Oslo]]'),
    ),
    Case(
        "minicpm",
        "broken",
        _MINICPM_CALL.replace("</param>", "</param>oops"),
        [*call(0, "get_weather", '{"city": "Oslo"'), ContentDelta("oops</function>")],
    ),
    Case(
        "kimi-k3",
        "thoughts, words and calls",
        f"Hm.<|close|>think<|sep|>{_response('I look.')}{_kimi_k3(_K3_CALL, _K3_NOW)}{_K3_END}",
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
        True,
    ),
    Case(
        "kimi-k3",
        "thoughts and an answer",
        f"<|open|>think<|sep|>Hm.<|close|>think<|sep|>{_response('Yes, think.')}{_K3_END}<|end_of_msg|>",
        [ReasoningDelta("Hm."), ContentDelta("Yes, think.")],
    ),
    Case(
        "kimi-k3", "an answer begun by the prompt", f" Yes.<|close|>response<|sep|>{_K3_END}", [ContentDelta(" Yes.")]
    ),
    Case(
        "kimi-k3",
        "thoughts without an end, and an answer",
        f"Hm.{_response('Yes.')}",
        [ReasoningDelta("Hm."), ContentDelta("Yes.")],
        True,
    ),
    Case("kimi-k3", "a call in thoughts", f"Hm.{_kimi_k3(_K3_CALL)}", [ReasoningDelta("Hm."), *weather()], True),
    Case(
        "kimi-k3",
        "values by their types, whatever the tag declares",
        _kimi_k3(
            '<|open|>call tool="get_weather" index="1"<|sep|>',
            _argument("city", "number", "5"),
            _argument("days", "integer", "5"),
            _argument("exact", "boolean", "true"),
            _argument("tags", "array", '["a"]'),
            _argument("u", "string", "5"),
            _argument("v", "number", "5"),
            _argument("w", "null", "null"),
            _argument("x", "object", '{"a": [1]}'),
            "<|close|>call<|sep|>",
        ),
        call(
            0,
            "get_weather",
            '{"city": "5", "days": 5, "exact": true, "tags": ["a"], "u": "5", "v": 5, "w": null, "x": {"a": [1]}}',
        ),
    ),
    Case(
        "kimi-k3",
        "text that looks like tags, no index and no frame",
        _K3_CALL.replace(' index="1"', "").replace("Oslo", 'Os<|open|>call tool="now"\n<|close|>call<|sep|>lo'),
        weather(city='Os<|open|>call tool=\\"now\\"\\n<|close|>call<|sep|>lo'),
    ),
    words("kimi-k3", "another tool", _kimi_k3(_K3_NOW.replace("now", "rm"))),
    Case("kimi-k3", "cut short", _kimi_k3(_K3_CALL).partition("lo<")[0], call(0, "get_weather", '{"city": "Os')),
    Case(
        "kimi-k3",
        "broken",
        _kimi_k3(_K3_CALL).replace("<|close|>call", "oops<|close|>call"),
        [*call(0, "get_weather", '{"city": "Oslo"'), ContentDelta("oops<|close|>call<|sep|><|close|>tools<|sep|>")],
    ),
    *(
        case
        for family, tagged in (("hunyuan", str), ("hunyuan-open", _open))
        for case in (
            Case(
                family,
                "thoughts, words and calls",
                tagged(f"<think>Hm.</think>I look.{_hunyuan(_HUNYUAN_CALL, _HUNYUAN_NOW)}"),
                [ReasoningDelta("Hm."), ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
            ),
            Case(
                family,
                "no thoughts, and no mark behind the name",
                tagged(f"<think></think>{_hunyuan(_HUNYUAN_CALL.replace('<tool_sep>', ''))}"),
                weather(),
            ),
            Case(
                family,
                "no blanks",
                tagged("<tool_calls><tool_call>now<tool_sep></tool_call></tool_calls>Bye."),
                [*call(0, "now", "{}"), ContentDelta("Bye.")],
            ),
            Case(
                family,
                "a call without its block and its end, in thoughts",
                tagged(f"Hm.{_HUNYUAN_CALL.removesuffix('</tool_call>')}{_HUNYUAN_NOW}</tool_calls>"),
                [ReasoningDelta("Hm."), *weather(), *call(1, "now", "{}")],
                True,
            ),
            Case(
                family,
                "a block without the end of a call",
                tagged(f"{_hunyuan(_HUNYUAN_CALL.removesuffix('</tool_call>'))}Bye."),
                [*weather(), ContentDelta("Bye.")],
            ),
            words(family, "another tool", tagged(_hunyuan(_HUNYUAN_NOW.replace("now", "rm")))),
            Case(
                family,
                "cut short",
                tagged(_hunyuan(_HUNYUAN_CALL)).partition("lo<")[0],
                call(0, "get_weather", '{"city": "Os'),
            ),
        )
    ),
]
