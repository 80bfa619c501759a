"""Texts of Solar Open, and their deltas."""

from gateway.chat.deltas import ContentDelta, ReasoningDelta
from tests.gateway.chat.formats.case import Case, words
from tests.gateway.chat.formats.parsing import call, weather

_NEXT = "<|end|><|begin|>assistant"
_CALL = '<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Oslo"}<|tool_call:end|>'
_NOW = "<|tool_call:begin|>a1b2c3d4e6<|tool_call:name|>now<|tool_call:args|><|tool_call:end|>"

SOLAR_CASES = [
    Case("solar", "an answer", "<|content|>Yes.<|end|>", [ContentDelta("Yes.")]),
    Case(
        "solar",
        "thoughts and an answer",
        f"<|think|>Hm.{_NEXT}<|content|>Yes.",
        [ReasoningDelta("Hm."), ContentDelta("Yes.")],
    ),
    Case("solar", "thoughts begun by the prompt", f"Hm.{_NEXT}", [ReasoningDelta("Hm.")], True),
    Case(
        "solar",
        "thoughts, words and calls",
        f"<|think|>Hm.{_NEXT}<|content|>I look.{_NEXT}<|tool_calls|>{_CALL}{_NOW}<|calls|>",
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
    ),
    Case("solar", "an answer that the prompt began", "two, three", [ContentDelta("two, three")]),
    words("solar", "another tool", _CALL.replace("get_weather", "rm")),
    Case("solar", "cut short", f"<|tool_calls|>{_CALL}".partition('lo"')[0], call(0, "get_weather", '{"city": "Os')),
    Case(
        "solar",
        "broken",
        _CALL.replace("}", "oops}"),
        [*call(0, "get_weather", '{"city": "Oslo"'), ContentDelta("oops}<|tool_call:end|>")],
    ),
]
