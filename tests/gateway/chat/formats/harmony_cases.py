"""Texts of gpt-oss, and their deltas."""

from gateway.chat.deltas import ContentDelta, ReasoningDelta
from tests.gateway.chat.formats.case import Case, words
from tests.gateway.chat.formats.parsing import call, weather

_CHANNEL_CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>'

HARMONY_CASES = [
    Case(
        "harmony",
        "thoughts and an answer",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
        [ReasoningDelta("Hm."), ContentDelta("Yes.")],
    ),
    Case(
        "harmony",
        "thoughts, a preamble and a call",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        f"<|start|>assistant{_CHANNEL_CALL}",
        [ReasoningDelta("Hm."), ContentDelta("I look."), *weather()],
    ),
    Case("harmony", "thoughts begun by the prompt", "Hm.<|end|>", [ReasoningDelta("Hm.")], True),
    Case(
        "harmony",
        "for whom it is in the role",
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}',
        weather(),
    ),
    Case(
        "harmony",
        "for whom it is in the role that the prompt began",
        ' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}',
        weather(),
    ),
    Case("harmony", "no namespace", _CHANNEL_CALL.replace("functions.", ""), weather()),
    Case(
        "harmony",
        "thoughts and an answer for itself",
        "<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm.<|end|>"
        "<|start|>assistant<|channel|>commentary to=assistant<|channel|>final<|message|>Yes.",
        [ReasoningDelta("Hm."), ContentDelta("Yes.")],
    ),
    words("harmony", "a tool of OpenAI", "<|channel|>analysis to=browser.search code<|message|>{}<|call|>"),
    words("harmony", "an answer like a role", " to=functions.\nYes."),
    words("harmony", "another tool", "<|channel|>commentary to=functions.rm<|message|>{}<|call|>"),
    words("harmony", "no header", "Yes."),
    Case("harmony", "a header cut short", "<|channel|>fin", []),
    Case("harmony", "the header of a call cut short", _CHANNEL_CALL[: _CHANNEL_CALL.index("ssage|>")], []),
    Case("harmony", "a call cut short before its arguments", _CHANNEL_CALL.partition("{")[0], []),
    Case("harmony", "an end without arguments, cut short", _CHANNEL_CALL.partition("{")[0] + "<|ca", []),
    Case(
        "harmony",
        "an end in place of arguments",
        "<|channel|>commentary to=functions.now <|constrain|>json<|message|> <|call|>",
        call(0, "now", "{}"),
    ),
    Case(
        "harmony",
        "a header cut short after an answer",
        "<|channel|>final<|message|>One.<|end|><|start|>assistant<|channel|>fin",
        [ContentDelta("One.")],
    ),
    Case(
        "harmony",
        "messages without ends",
        "<|channel|>analysis<|message|>Hm.<|channel|>analysis<|message|>So.<|start|>assistant<|channel|>final<|message|>Yes.",
        [ReasoningDelta("Hm.\n\nSo."), ContentDelta("Yes.")],
    ),
    Case("harmony", "whitespace around arguments", _CHANNEL_CALL.replace("{", "\n{").replace("}", "}\n"), weather()),
    Case(
        "harmony",
        "arguments that break",
        _CHANNEL_CALL.replace("}", ", days}"),
        [*call(0, "get_weather", '{"city": "Oslo", '), ContentDelta("days}<|call|>")],
    ),
    words("harmony", "arguments that are no object", _CHANNEL_CALL.replace('{"city": "Oslo"}', "Oslo")),
    Case(
        "harmony",
        "messages in a row",
        "<|channel|>final<|message|>One.<|end|><|start|>assistant<|channel|>final<|message|>Two.",
        [ContentDelta("One.\n\nTwo.")],
    ),
]
