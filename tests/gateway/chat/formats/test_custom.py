"""Custom tools: in each family's notation the input follows its grammar, and is read back as it is."""

import json

import pytest

from engine import Grammar, GrammarKind, RequestError
from gateway.chat.custom_inputs import CustomInputs, arguments_of, custom_tool
from gateway.chat.deltas import CallArguments, CallBegan
from gateway.chat.formats.signature import signature
from tests.gateway.chat.formats.case import wide
from tests.gateway.chat.formats.cases import TEMPLATES
from tests.gateway.chat.formats.forced_calls import CALLS, VOCABULARIES, call_text
from tests.gateway.chat.formats.parsing import choose, joined, stream

LARK = Grammar(GrammarKind.LARK, 'start: LINE (LF LINE)*\nLINE: "say " /[^\\n]+/\n%import common.LF')
REGEX = Grammar(GrammarKind.REGEX, r"say [^\n]+\nsay [^\n]+")
DAYS = [
    ", days=5",
    ",days:5",
    "<parameter=days>\n5\n</parameter>\n",
    "\n<arg_key>days</arg_key>\n<arg_value>5</arg_value>",
    wide('<|DSML|parameter name="days" string="false">5</|DSML|parameter>\n'),
    '<parameter name="days">5</parameter>\n',
    '<param name="days">5</param>',
    "]<]minimax[>[<days>5]<]minimax[>[</days>",
    '<|open|>argument key="days" type="number"<|sep|>5<|close|>argument<|sep|>',
    "<parameter=days>5</parameter>\n",
    "\n<arg_key:opensource>days</arg_key:opensource>\n<arg_value:opensource>5</arg_value:opensource>",
    '<atem:parameter name="days">5</atem:parameter>\n',
]
"""The second argument of the calls, in each notation: a custom tool has one."""
INPUT = 'say "hé"\nsay \\o/'


def written(family: str, text: str) -> str:
    """Return a call with an input, as the family writes it."""
    call = CALLS[family][0].replace("city", "input")
    for days in DAYS:
        call = call.replace(days, "")
    quoted = '"Oslo"' in call
    shown = call.replace('"Oslo"' if quoted else "Oslo", json.dumps(text, ensure_ascii=False) if quoted else text)
    return call_text(family, shown)


@pytest.mark.parametrize("grammar", [LARK, REGEX, None], ids=["lark", "regex", "text"])
@pytest.mark.parametrize("family", TEMPLATES)
def test_an_input_follows_its_grammar_and_is_read_back(family: str, grammar: Grammar | None) -> None:
    vocabulary = VOCABULARIES["tokens"]
    chosen = choose(TEMPLATES[family], vocabulary.special_tokens)
    tool = custom_tool("get_weather", None, grammar)
    for choice in ("required", "auto"):
        forced = chosen.grammar([tool], choice, parallel=False, thinking=False)
        assert forced is not None
        assert vocabulary.allows(forced, written(family, INPUT))
        if choice == "required":
            assert vocabulary.allows(forced, written(family, "say\nno")) is (grammar is None)
    for size in (1, 3, 1000):
        parser = CustomInputs(chosen.parser(tools=(signature(tool),), thinking=False), [tool.name])
        text = written(family, INPUT)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        deltas = joined(delta for step in stream(parser, pieces) for delta in step)
        assert deltas == [CallBegan(0, tool.name, custom=True), CallArguments(0, INPUT)]
        assert not parser.cut_calls


@pytest.mark.parametrize("escaped", ['"\\ud83d\\ude00 \\u00e9\\n\\/"', '"\\ud83d x"', '"a', '"a\\', '"\\\\ud83d"'])
def test_escapes_are_decoded_wherever_the_text_is_cut(escaped: str) -> None:
    chosen = choose(TEMPLATES["hermes"])
    tool = custom_tool("f", None, None)
    text = f'<tool_call>{{"name": "f", "arguments": {{"input": {escaped}'
    texts = set()
    for size in (1, 2, 7, 1000):
        parser = CustomInputs(chosen.parser(tools=(signature(tool),), thinking=False), ["f"])
        deltas = stream(parser, [text[at : at + size] for at in range(0, len(text), size)])
        found = [delta.text for step in deltas for delta in step if isinstance(delta, CallArguments)]
        texts.add("".join(found))
    assert len(texts) == 1
    assert texts <= {"😀 é\n/", "\ufffd x", "a", "\\ud83d"}


def test_arguments_of_an_input_are_json() -> None:
    assert json.loads(arguments_of(INPUT)) == {"input": INPUT}


def test_the_model_sees_the_grammar() -> None:
    properties: dict[str, dict[str, str]] = custom_tool("f", None, LARK).parameters["properties"]
    assert LARK.source in properties["input"]["description"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("start: /[a-[b]]/", "which has others inside"),
        (r"start: /\P{L}/", "cannot have"),
        ("start: /a(?=b)/", "cannot have"),
        ("start: /a/x", "the flags x"),
        ('start: %json {"type": "null"}', "cannot have %json"),
        ("start: <|end|>", "cannot have <|end|>"),
        ("start: A\n%import common.NOTHING", "common.NOTHING cannot be imported"),
        ('start: "ab".."c"', "not between two characters"),
        (r'start: "\q"', "is invalid"),
    ],
)
def test_a_grammar_that_cannot_be_escaped_is_refused(source: str, words: str) -> None:
    tool = custom_tool("f", None, Grammar(GrammarKind.LARK, source))
    with pytest.raises(RequestError, match="The grammar of a custom tool") as caught:
        choose(TEMPLATES["hermes"]).grammar([tool], "required", parallel=False, thinking=False)
    assert words in caught.value.message
    assert caught.value.param == "tools"
