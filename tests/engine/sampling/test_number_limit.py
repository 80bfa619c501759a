"""Numbers of JSON: they end, whatever the model prefers, and every number that programs write is possible."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.llama.model import LlamaModel
from engine.request import Grammar, GrammarKind
from engine.sampling.constraint import Constraint
from engine.sampling.number_limit import MOST_DIGITS, NumberLimit
from tests.models import model_path

WORKERS = ThreadPoolExecutor(1)
LONGEST = 2 * MOST_DIGITS + 20
NUMBER = {"type": "number"}


@pytest.fixture(scope="module")
def spelling() -> Iterator[tuple[LlamaModel, dict[str, int]]]:
    """Return a model and its token of each character."""
    config = EngineConfig(model=str(model_path()), slots=1, context=256, threads=1)
    with LlamaModel(config, lambda _share: None) as model:
        pieces = {model.piece(token): token for token in range(model.info.vocabulary)}
        yield model, {chr(byte): pieces[bytes([byte])] for byte in range(128)}


Write = Callable[[Grammar, str, str], str]


@pytest.fixture
def write(spelling: tuple[LlamaModel, dict[str, int]]) -> Write:
    """Return a function that writes a text by a grammar.

    It writes a given beginning, as far as the grammar allows it. Then it takes the first possible one of some
    characters, up to the end of the text.
    """
    model, tokens = spelling
    (end,) = model.end_tokens

    def written(grammar: Grammar, beginning: str, preferred: str) -> str:
        constraint, text = Constraint(model.compile(grammar), WORKERS), ""
        while len(text) < 4 * LONGEST:
            denied = constraint.denied()
            wanted = beginning[len(text)] if len(text) < len(beginning) else ""
            character = next((one for one in f"{wanted}{preferred}" if not denied[tokens[one]]), None)
            if character is None:
                assert not denied[end]
                break
            constraint.accept(tokens[character])
            text += character
        return text

    return written


def by_schema(schema: object) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))


SCHEMAS = [
    NUMBER,
    {"type": "number", "minimum": 0},
    {"type": "number", "exclusiveMaximum": 0},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "multipleOf": 0.25},
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "number", "multipleOf": 7, "minimum": 10**15},
    {"type": ["number", "null"]},
    {"anyOf": [{"type": "integer", "multipleOf": 3}, {"type": "null"}]},
    {"type": "integer", "multipleOf": 3},
    {"type": "integer", "multipleOf": 2},
    {"type": "integer", "multipleOf": 100, "minimum": 150},
    {"type": "number", "multipleOf": 10},
    {},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@pytest.mark.parametrize("preferred", ["0.1e-", "10.e-", "-9.e", "-.0E+1"])
def test_a_number_ends_whatever_the_model_prefers(write: Write, schema: dict[str, Any], preferred: str) -> None:
    rest = "".join(dict.fromkeys(f"{preferred}{'.-0123456789'}"))
    text = write(by_schema({"type": "array", "items": schema, "minItems": 1, "maxItems": 1}), "[", f"{rest}]")
    assert len(text) <= LONGEST
    json.loads(text)


def test_a_number_of_a_call_ends(write: Write) -> None:
    source = 'start: "<call>f(x=" %json {"type": "number"} ")"'
    text = write(Grammar(GrammarKind.LARK, source), "<call>f(x=0.", "0)")
    assert text == f"<call>f(x=0.{'0' * MOST_DIGITS})"


NUMBERS = [
    0.1 + 0.2,
    1.7976931348623157e308,
    5e-324,
    -1.2345678901234567e-7,
    2**127,
    10**38 + 1,
    0.00012345678901234567,
    123456789012345678.0,
]


@pytest.mark.parametrize("number", NUMBERS)
def test_the_numbers_of_programs_are_possible(write: Write, number: float) -> None:
    text = json.dumps({"a": [number]})
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": NUMBER}}, "required": ["a"]}
    assert write(by_schema(schema), text, "") == write(by_schema({"type": "object"}), text, "") == text


@pytest.mark.parametrize("number", [1e300, -1e-300, 5e-324])
def test_a_constant_may_be_longer(write: Write, number: float) -> None:
    assert float(write(by_schema({"const": number}), "", "0123456789.e-")) == number


def test_a_token_of_several_digits_is_one_more_digit() -> None:
    pieces = [b"0", b"000", b"42", b" 1", b",", b'"', b"x", b""]
    limit, end = NumberLimit(pieces), b"[-1."
    in_number = np.array([piece in {b" 1", b'"', b"x", b""} for piece in pieces])
    for _ in range(MOST_DIGITS // 3):
        end = limit.end_of(end, 1)
        assert (limit.applied(end, in_number) == in_number).all()
    end = limit.end_of(end, 1)
    assert [pieces[at] for at in np.flatnonzero(~limit.applied(end, in_number))] == [b","]
    unfinished = in_number | np.array([piece == b"," for piece in pieces])
    assert [pieces[at] for at in np.flatnonzero(~limit.applied(end, unfinished))] == [b"42"]


LONG = "3" * (4 * MOST_DIGITS)


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (by_schema({"type": "string"}), f'"{LONG}"'),
        (by_schema({"type": "string"}), f'"it is 0.{LONG}"'),
        (by_schema({"type": "string", "pattern": r"^[0-9]+$"}), f'"{LONG}"'),
        (by_schema({"type": "string", "pattern": r"^[0-9]{1,500}-x$"}), f'"{LONG}-x"'),
        (by_schema({"type": "string", "pattern": r"^id-[0-9]{1,500}-x$"}), f'"id-{LONG}-x"'),
        (by_schema({"type": "object"}), f'{{"{LONG}": null}}'),
        (Grammar(GrammarKind.REGEX, "[0-9]+,"), f"{LONG},"),
        (Grammar(GrammarKind.GBNF, 'root ::= [0-9]+ ","'), f"{LONG},"),
        (
            Grammar(GrammarKind.LARK, 'start: free %json {"type": "number"}\nfree[suffix="<x>"]: /(?s:.*)/'),
            f"pi is 3.{LONG}<x>1",
        ),
    ],
    ids=str,
)
def test_other_digits_are_free(write: Write, grammar: Grammar, text: str) -> None:
    assert write(grammar, text, "") == text
