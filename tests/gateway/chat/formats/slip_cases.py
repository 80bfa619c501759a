"""Texts with slips of models in the markup of calls and of reasoning, and their deltas."""

from gateway.chat.deltas import ContentDelta, ReasoningDelta
from tests.gateway.chat.formats.case import Case, wide, words
from tests.gateway.chat.formats.parsing import call, weather

_KIMI_NOW = "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>"
_NOW = "<|tool▁call▁begin|>now<|tool▁sep|>"
_TYPED_NOW = "<|tool▁call▁begin|>function<|tool▁sep|>now\n"
_TYPED = "<|tool▁call▁begin|>function<|tool▁sep|>get_weather\n"
_TYPED_END = "<|tool▁call▁end|><|tool▁calls▁end|>"
_TWICE = [*call(0, "now", "{}"), *call(1, "now", "{}")]

SLIP_CASES = [
    Case(
        "kimi",
        "calls with nothing for their arguments",
        f"<|tool_calls_section_begin|>{_KIMI_NOW}<|tool_call_end|>{_KIMI_NOW} <|tool_calls_section_end|>",
        _TWICE,
    ),
    words("kimi", "a call cut short before its arguments", _KIMI_NOW),
    Case(
        "deepseek",
        "calls with nothing for their arguments",
        wide(f"<|tool▁calls▁begin|>{_NOW}<|tool▁call▁end|>{_NOW}\n<|tool▁calls▁end|>"),
        _TWICE,
    ),
    Case(
        "deepseek-typed",
        "calls with nothing for their arguments",
        wide(f"<|tool▁calls▁begin|>{_TYPED_NOW}```json\n```<|tool▁call▁end|>{_TYPED_NOW}{_TYPED_END}"),
        _TWICE,
    ),
    *(
        Case(
            "deepseek-typed",
            f"{before!r} and {behind!r} around the arguments",
            wide(f'<|tool▁calls▁begin|>{_TYPED}{before}{{"city": "Oslo"}}{behind}{_TYPED_END}'),
            weather(),
        )
        for before, behind in (("", ""), ("```\n", "\n```"), ("", "\n```\n"), ("```json\n", ""))
    ),
    Case(
        "deepseek",
        "a block of JSON",
        wide('<|tool▁calls▁begin|><|tool▁call▁begin|>get_weather<|tool▁sep|>```json\n{"city": "Oslo"}\n```')
        + wide(_TYPED_END),
        weather(),
    ),
    Case("mistral", "calls with nothing for their arguments", "[TOOL_CALLS]now[ARGS][TOOL_CALLS]now[ARGS]", _TWICE),
    words("mistral", "a call cut short before its arguments", "[TOOL_CALLS]get_weather[ARGS]"),
    words("mistral", "a call cut short in its name", "[TOOL_CALLS]now"),
    Case(
        "hermes",
        "thoughts begun by the prompt, and again",
        "\n<think>\nHm. <think>?</think>Yes.",
        [ReasoningDelta("Hm. <think>?"), ContentDelta("Yes.")],
        True,
    ),
    Case(
        "deepseek",
        "a call in thoughts",
        wide(f"Hm.<|tool▁calls▁begin|>{_NOW}{{}}{_TYPED_END}"),
        [ReasoningDelta("Hm."), *call(0, "now", "{}")],
        True,
    ),
    Case(
        "deepseek",
        "no call in thoughts",
        wide("Hm.<|tool▁calls▁begin|></think>Yes."),
        [ReasoningDelta(wide("Hm.<|tool▁calls▁begin|>")), ContentDelta("Yes.")],
        True,
    ),
    Case(
        "gemma-4",
        "a call in thoughts, and their end behind it",
        "<|channel>thought\nHm.<|tool_call>call:now{}<tool_call|><channel|>Yes.",
        [ReasoningDelta("Hm."), *call(0, "now", "{}"), ContentDelta("Yes.")],
    ),
    Case(
        "gemma-4",
        "thoughts behind calls, and behind words",
        "<|tool_call>call:now{}<tool_call|><|channel>thought\nHm.<channel|><|tool_call>call:now{}<tool_call|>"
        "B<|channel>thought\nC",
        [
            *call(0, "now", "{}"),
            ReasoningDelta("Hm."),
            *call(1, "now", "{}"),
            ContentDelta("B<|channel>thought\nC"),
        ],
    ),
    Case(
        "mistral",
        "thoughts behind a call",
        "I look.[TOOL_CALLS]now[ARGS]{} [THINK]So.[/THINK]Yes, [THINK].",
        [ContentDelta("I look."), *call(0, "now", "{}"), ReasoningDelta("So."), ContentDelta("Yes, [THINK].")],
    ),
    Case(
        "gemma-3",
        "printed calls",
        "```tool_code\nprint(get_weather(city='Oslo'))\nprint( now( ) )\nnow()\n```Bye.",
        [*weather(), *call(1, "now", "{}"), *call(2, "now", "{}"), ContentDelta("Bye.")],
    ),
    words("gemma-3", "another printed tool", "```tool_code\nprint(rm())\n```"),
    Case(
        "lfm2",
        "calls without brackets",
        "<|tool_call_start|>get_weather(city='Oslo')\nnow()<|tool_call_end|>Bye.",
        [*weather(), *call(1, "now", "{}"), ContentDelta("Bye.")],
    ),
    Case(
        "nemotron",
        "a call without brackets",
        '<TOOLCALL>{"name": "get_weather", "arguments": {"city": "Oslo"}}</TOOLCALL>',
        weather(),
    ),
    Case(
        "granite",
        "a call without brackets",
        '<|tool_call|>{"name": "get_weather", "arguments": {"city": "Oslo"}}\nBye.',
        [*weather(), ContentDelta("Bye.")],
    ),
    Case("hermes", "thoughts begun by the prompt, cut short", "\n<thi", [ReasoningDelta("<thi")], True),
]
