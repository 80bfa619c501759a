"""Texts of Muse Glimmer, and their deltas."""

from gateway.chat.deltas import ContentDelta, ReasoningDelta
from tests.gateway.chat.formats.case import Case, words
from tests.gateway.chat.formats.parsing import call, weather

_INVOKED = '<atem:invoke name="get_weather">\n<atem:parameter name="city">Oslo</atem:parameter>\n</atem:invoke>'
_NOW = '<atem:invoke name="now">\n</atem:invoke>'
_THOUGHTS, _NEXT = " to=self<|message|>Hm.", "<|eom|><|start|>assistant"


def _called(*calls: str, to: str = "get_weather") -> str:
    return "\n".join((f" to={to}<|message|><atem:function_calls>", *calls, "</atem:function_calls>"))


MUSE_CASES = [
    Case("muse", "an answer", " to=user<|message|>It rains.\n<|eot|>", [ContentDelta("It rains.\n")]),
    Case("muse", "no recipient", "<|message|>Yes.<|eot|>", [ContentDelta("Yes.")]),
    Case(
        "muse",
        "thoughts and an answer",
        f"{_THOUGHTS}{_NEXT} to=user<|message|>Yes.",
        [ReasoningDelta("Hm."), ContentDelta("Yes.")],
    ),
    Case("muse", "thoughts begun by the prompt", "Hm.<|eom|>", [ReasoningDelta("Hm.")], True),
    Case(
        "muse",
        "thoughts, words and calls",
        f"{_THOUGHTS}{_NEXT} to=user<|message|>I look.{_NEXT}{_called(_INVOKED)}{_NEXT}{_called(_NOW, to='now')}",
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather(), *call(1, "now", "{}")],
    ),
    Case("muse", "calls in one message", _called(_INVOKED, _NOW), [*weather(), *call(1, "now", "{}")]),
    Case(
        "muse",
        "thoughts without an end",
        f"{_THOUGHTS}<|start|>assistant{_called(_INVOKED)}",
        [ReasoningDelta("Hm."), *weather()],
    ),
    Case("muse", "no call in thoughts", f" to=self<|message|>{_INVOKED}", [ReasoningDelta(_INVOKED)]),
    Case("muse", "markup in an answer", f" to=user<|message|>So: {_INVOKED}", [ContentDelta(f"So: {_INVOKED}")]),
    Case("muse", "an answer that the prompt began", "two, three<|eot|>", [ContentDelta("two, three")]),
    words("muse", "another tool", _called(_INVOKED.replace("get_weather", "rm"), to="rm")),
    words("muse", "no call for a tool", " to=get_weather<|message|>Oslo"),
    Case("muse", "cut short", _called(_INVOKED).partition("lo<")[0], call(0, "get_weather", '{"city": "Os')),
    Case(
        "muse",
        "broken",
        _called(_INVOKED).replace("</atem:invoke>", "oops"),
        [*call(0, "get_weather", '{"city": "Oslo"'), ContentDelta("oops\n</atem:function_calls>")],
    ),
]
