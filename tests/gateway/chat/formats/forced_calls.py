"""Calls as the grammar of each family forces them."""

from tests.gateway.chat.formats.case import wide
from tests.grammar_matching import Vocabulary

_HARMONY_CALL = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{}"
_M3 = "]<]minimax[>["
_FRAMES = {
    "deepseek": wide("<|tool▁calls▁begin|>{}<|tool▁calls▁end|>"),
    "deepseek-typed": wide("<|tool▁calls▁begin|>{}<|tool▁calls▁end|>"),
    "mistral-listed": "[TOOL_CALLS][{}]",
    "llama-pythonic": "[{}]",
    "gemma-3": "```tool_code{}\n```",
    "nemotron": "<TOOLCALL>[{}]</TOOLCALL>",
    "apriel": "<tool_calls>[{}]</tool_calls>",
    "granite": "<|tool_call|>[{}]",
    "apertus": "<|tools_prefix|>[{}]<|tools_suffix|>",
    "cohere": "<|START_ACTION|>[\n    {}\n]<|END_ACTION|>",
    "lfm2": "<|tool_call_start|>[{}]<|tool_call_end|>",
    "kimi": "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>",
    "solar": "<|tool_calls|>{}",
    "olmo": "<function_calls>{}</function_calls>",
    "hunyuan": "<tool_calls>\n{}\n</tool_calls>",
    "hunyuan-open": "<tool_calls:opensource>\n{}\n</tool_calls:opensource>",
    "kimi-k3": "<|open|>tools<|sep|>{}<|close|>tools<|sep|>",
    "minimax-m3": f"{_M3}<tool_call>\n{{}}\n{_M3}</tool_call>",
    "minimax": "<minimax:tool_call>\n{}\n</minimax:tool_call>",
    "dsml-functions": wide("<|DSML|function_calls>\n{}\n</|DSML|function_calls>"),
    "dsml": wide("<|DSML|tool_calls>\n{}\n</|DSML|tool_calls>"),
}
_SEPARATORS = {
    **dict.fromkeys(("nemotron", "apriel", "granite", "apertus", "lfm2"), ", "),
    "cohere": ",\n    ",
    "hermes": "\n",
    "plain": "\n",
    "qwen-coder": "\n",
    "seed": "\n",
    "minimax": "\n",
    "minimax-m3": "\n",
    "minicpm": "\n",
    "dsml-functions": "\n",
    "dsml": "\n",
    "glm": "\n",
    "olmo": "\n",
    "hunyuan": "\n",
    "hunyuan-open": "\n",
    "functionary-3.2": ">>>",
    "muse": "<|eom|><|start|>assistant",
    "llama": "; ",
    "mistral-listed": ", ",
    "llama-pythonic": ", ",
}
_GLM = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>{}\n</tool_call>"
_CODER = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n{}</function>\n</tool_call>"
_DSML = wide(
    '<|DSML|invoke name="get_weather">\n<|DSML|parameter name="city" string="true">Oslo</|DSML|parameter>\n'
    '<|DSML|parameter name="days" string="false">5</|DSML|parameter>\n</|DSML|invoke>'
)
_MINIMAX = (
    '<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n<parameter name="days">5</parameter>\n'
    "</invoke>"
)
_MINIMAX_M3 = f'{_M3}<invoke name="get_weather">{_M3}<city>Oslo{_M3}</city>{_M3}<days>5{_M3}</days>{_M3}</invoke>'
_MINICPM = (
    '<function name="get_weather"><param name="city"><![CDATA[Oslo]]></param><param name="days">5</param></function>'
)
_SEED = (
    "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n<parameter=days>5</parameter>\n"
    "</function>\n</seed:tool_call>"
)
_KIMI_K3 = (
    '<|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Oslo<|close|>'
    'argument<|sep|><|open|>argument key="days" type="number"<|sep|>5<|close|>argument<|sep|><|close|>call<|sep|>'
)
_KIMI = '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|>'
_MUSE = (
    ' to=get_weather<|message|><atem:function_calls>\n<atem:invoke name="get_weather">\n'
    '<atem:parameter name="city">Oslo</atem:parameter>\n<atem:parameter name="days">5</atem:parameter>\n'
    "</atem:invoke>\n</atem:function_calls>"
)
_HUNYUAN = (
    "<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>"
    "\n<arg_key>days</arg_key>\n<arg_value>5</arg_value>\n</tool_call>"
)
_SOLAR = '<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Oslo"}<|tool_call:end|>'
_GIGACHAT = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
CALLS = {
    "gigachat": (f"<|function_call|>{_GIGACHAT}", '"Oslo"', "5"),
    "gigachat-3": (f"<|message_sep|>\n\nfunction call<|role_sep|>\n{_GIGACHAT}", '"Oslo"', "5"),
    "hermes": ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>', '"Oslo"', "5"),
    "plain": ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>', '"Oslo"', "5"),
    "qwen-coder": (_CODER.format("<parameter=days>\n5\n</parameter>\n"), "\n5\n", "\nfive\n"),
    "glm": (_GLM.format("\n<arg_key>days</arg_key>\n<arg_value>5</arg_value>"), ">5<", ">five<"),
    "llama": ('{"name": "get_weather", "parameters": {"city": "Oslo"}}', '"Oslo"', "5"),
    "llama-pythonic": ('get_weather(city="Oslo", days=5)', "5", '"five"'),
    "mistral": ('[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}', '"Oslo"', "5"),
    "mistral-listed": ('{"name": "get_weather", "arguments": {"city": "Oslo"}}', '"Oslo"', "5"),
    "deepseek": (wide('<|tool▁call▁begin|>get_weather<|tool▁sep|>{"city": "Oslo"}<|tool▁call▁end|>'), '"Oslo"', "5"),
    "deepseek-typed": (
        wide('<|tool▁call▁begin|>function<|tool▁sep|>get_weather\n```json\n{"city": "Oslo"}\n```<|tool▁call▁end|>'),
        '"Oslo"',
        "5",
    ),
    "harmony": (_HARMONY_CALL.format("get_weather", '{"city": "Oslo"}'), '"Oslo"', "5"),
    "gemma-4": ('<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,days:5}<tool_call|>', "5", '<|"|>5<|"|>'),
    "function-gemma": (
        "<start_function_call>call:get_weather{city:<escape>Oslo<escape>,days:5}<end_function_call>",
        "5",
        "<escape>5<escape>",
    ),
    "dsml-functions": (_DSML, ">5<", ">five<"),
    "dsml": (_DSML, 'string="false"', 'string="true"'),
    "minimax": (_MINIMAX, ">5<", ">five<"),
    "minimax-m3": (_MINIMAX_M3, f">5{_M3}", f">five{_M3}"),
    "minicpm": (_MINICPM, ">5<", ">five<"),
    "seed": (_SEED, ">5<", ">five<"),
    **dict.fromkeys(
        ("nemotron", "apriel", "granite"), ('{"name": "get_weather", "arguments": {"city": "Oslo"}}', '"Oslo"', "5")
    ),
    "apertus": ('{"get_weather": {"city": "Oslo"}}', '"Oslo"', "5"),
    "lfm2": ('get_weather(city="Oslo", days=5)', "5", '"five"'),
    "functionary": ('<function=get_weather>{"city": "Oslo"}</function>', '"Oslo"', "5"),
    "functionary-3.2": ('get_weather\n{"city": "Oslo"}', '"Oslo"', "5"),
    "cohere": ('{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Oslo"}}', '"Oslo"', "5"),
    "kimi-k3": (_KIMI_K3, ">5<", ">five<"),
    "hunyuan": (_HUNYUAN, ">5<", ">five<"),
    "hunyuan-open": (_HUNYUAN.replace(">", ":opensource>"), ">5<", ">five<"),
    "olmo": ('get_weather(city="Oslo", days=5)', "5", '"five"'),
    "solar": (_SOLAR, '"Oslo"', "5"),
    "muse": (_MUSE, ">5<", ">five<"),
    "kimi": (_KIMI, '"Oslo"', "5"),
    "gemma-3": ('\nget_weather(city="Oslo", days=5)', "5", '"five"'),
}
"""A call, a text in it, and a variant that the grammar must refuse."""
_MARKERS = [
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *(
        "[TOOL_CALLS]",
        "[ARGS]",
        "[THINK]",
        "[/THINK]",
        "<|python_tag|>",
        "<|python_start|>",
        "<|python_end|>",
        "<|tool_call>",
        "<tool_call|>",
        '<|"|>',
    ),
    *("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>", "<start_function_call>", "<escape>"),
    *("<tool_calls:opensource>", "<tool_call:opensource>", "</tool_call:opensource>", "<tool_sep:opensource>"),
    *("<tool_sep>", "<arg_key:opensource>", "</arg_value:opensource>", "</think:opensource>"),
    *("<|begin|>", "<|think|>", "<|content|>", "<|tool_calls|>", "<|tool_call:begin|>", "<|tool_call:args|>"),
    *("<|eom|>", "<|eot|>", "<atem:function_calls>", "</atem:function_calls>"),
    *("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    *("<|open|>", "<|close|>", "<|sep|>", _M3, "<mm:think>", "</mm:think>"),
    *("<TOOLCALL>", "</TOOLCALL>", "<|tool_call|>", "<|tool_call_start|>", "<|tools_prefix|>"),
    *("<minimax:tool_call>", "</minimax:tool_call>", "<seed:tool_call>", "<seed:think>", wide("|DSML|")),
    *map(
        wide, ("<|tool▁calls▁begin|>", "<|tool▁calls▁end|>", "<|tool▁call▁begin|>", "<|tool▁call▁end|>", "<|tool▁sep|>")
    ),
]
MINICPM_VOCABULARY = Vocabulary(["<think>", "</think>", "<function", "</function>", "<param", "</param>"])
"""Its tokens are parts of other families' tags."""
COHERE_VOCABULARY = Vocabulary(
    [
        *("<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>"),
        *("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ]
)
VOCABULARIES = {"tokens": Vocabulary(_MARKERS), "text": Vocabulary()}


ENDS = [
    *('"', "}", "]", ")", "\n", ", ", "\n```", "</parameter>", "</function>", "</param>", "]]></param>", "</invoke>"),
    *("[/THINK]", "</seed:think>", "<channel|>", "</mm:think>", "<|close|>think<|sep|>"),
    *("</arg_value:opensource>", "</tool_call:opensource>", "</tool_calls:opensource>", "</think:opensource>"),
    *("<|tool_call:end|>", "<|end|>", "</function_calls>"),
    *("</atem:parameter>", "</atem:invoke>", "</atem:function_calls>"),
    *("</arg_value>", "</tool_call>", "</think>", "</seed:tool_call>", "</minimax:tool_call>", f"{_M3}</city>"),
    *(f"{_M3}</invoke>", f"{_M3}</tool_call>", "<|close|>argument<|sep|>", "<|close|>call<|sep|>"),
    *("<|close|>tools<|sep|>", "<escape>", '<|"|>', "<end_function_call>", "<tool_call|>", "<|END_ACTION|>"),
    *("<|tools_suffix|>", "<|tool_calls_section_end|>", "<|tool_call_end|>", "</TOOLCALL>", "</tool_calls>"),
    *map(wide, ("\n```<|tool▁call▁end|>", "<|tool▁call▁end|>", "<|tool▁calls▁end|>")),
    *map(wide, ("</|DSML|parameter>", "</|DSML|invoke>", "</|DSML|tool_calls>", "</|DSML|function_calls>")),
]
"""Texts that end parts of calls."""


def call_text(family: str, *calls: str) -> str:
    """Return a text with calls of a family."""
    return _FRAMES.get(family, "{}").replace("{}", _SEPARATORS.get(family, "").join(calls))
