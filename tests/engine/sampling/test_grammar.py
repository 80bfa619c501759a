"""Grammars: supported and refused sources, error messages, and masks that allow exactly the grammar."""

import contextlib
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product

import llama_cpp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.errors import RequestError
from engine.llama.model import LlamaModel
from engine.request import Grammar, GrammarKind
from engine.sampling import grammar_cache
from engine.sampling.candidates import DrawError
from engine.sampling.constraint import Constraint
from engine.sampling.grammar import CompiledGrammar, GrammarCompiler
from tests.models import model_path
from tests.repeat import TIMES, repeated

WORKERS = ThreadPoolExecutor(2)
REGEX, LARK, GBNF, SCHEMA = GrammarKind.REGEX, GrammarKind.LARK, GrammarKind.GBNF, GrammarKind.JSON_SCHEMA


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    config = EngineConfig(model=str(model_path()), slots=1, context=256, threads=1)
    with LlamaModel(config, lambda _share: None) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def end(model: LlamaModel) -> int:
    (token,) = model.end_tokens
    return token


def byte_tokens(model: LlamaModel) -> dict[bytes, int]:
    """Return a token for every byte, so that any text can be spelt."""
    single = {model.piece(token): token for token in range(model.info.vocabulary)}
    return {bytes([byte]): single[bytes([byte])] for byte in range(256)}


def follow(model: LlamaModel, grammar: Grammar, text: str) -> Constraint:
    """Return a constraint that has accepted a text byte by byte. Fails the test where the grammar refuses a byte."""
    spelling = byte_tokens(model)
    constraint = Constraint(model.compile(grammar), WORKERS)
    for byte in text.encode():
        token = spelling[bytes([byte])]
        assert not constraint.denied()[token], f"{text!r} may not have {chr(byte)!r}"
        constraint.accept(token)
    return constraint


def matches(model: LlamaModel, grammar: Grammar, text: str) -> bool:
    """Return true if a text may stand, and end."""
    spelling = byte_tokens(model)
    constraint = Constraint(model.compile(grammar), WORKERS)
    for byte in text.encode():
        if constraint.denied()[spelling[bytes([byte])]]:
            return False
        constraint.accept(spelling[bytes([byte])])
    return not constraint.denied()[min(model.end_tokens)]


@pytest.mark.parametrize(
    ("kind", "source", "good", "bad"),
    [
        (REGEX, r"\d{3}-[a-z]+", "123-abc", "12-abc"),
        (REGEX, r"^(yes|no)$", "yes", "yes no"),
        (REGEX, "a/b\n\\/", "a/b\n/", "a/b/"),
        (LARK, 'start: "a" B\nB: /[0-9]+/', "a42", "a"),
        (GBNF, 'root ::= "a" digit+ ("x" | "y")\ndigit ::= [0-9] # one', "a12x", "a12"),
        (SCHEMA, '{"type": "string", "pattern": "^\\\\d\\\\d$"}', '"42"', '"4x"'),
        (SCHEMA, '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}', '{"a": 1}', "{}"),
        (SCHEMA, '{"enum": ["one", 2, null]}', "null", "true"),
        (SCHEMA, '{"const": -9223372036854774784}', "-9223372036854774784", "0"),
        (SCHEMA, "true", '[1, {"a": []}]', "[1"),
        (
            SCHEMA,
            '{"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}',
            "[[]]",
            "[1]",
        ),
    ],
)
def test_every_grammar_language_matches_its_texts_only(
    model: LlamaModel, kind: GrammarKind, source: str, good: str, bad: str
) -> None:
    assert matches(model, Grammar(kind, source), good)
    assert not matches(model, Grammar(kind, source), bad)


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        (REGEX, "(", "unclosed group"),
        (REGEX, "(?=a)b", "look-around"),
        (REGEX, "", "only the empty text"),
        (REGEX, "()|a{0}", "only the empty text"),
        (LARK, 'start: "" | ""', "only the empty text"),
        (GBNF, 'root ::= ""', "only the empty text"),
        (LARK, 'start: "a" missing', "missing"),
        (LARK, "start: <|nothing|>", "unknown special token"),
        (LARK, "", "no start"),
        (GBNF, "root := x", "Expected ::="),
        (GBNF, 'root ::= "a" missing', "'missing' not found"),
        (GBNF, 'root ::= "a\\', "index"),
        (GBNF, "root ::= " + "(" * 5000, "recursion"),
        (SCHEMA, "{", "not JSON"),
        (SCHEMA, "[" * 300_000, "characters"),
        (SCHEMA, "[" * 20_000, "not JSON"),
        (SCHEMA, '{"type": "number", "minimum": NaN}', "failed to parse"),
        (SCHEMA, '{"type": "strin"}', "strin"),
        (SCHEMA, '{"const": -9223372036854775808}', "is less than"),
        (SCHEMA, '{"enum": [{"a": [-9223372036854775808]}]}', "is less than"),
        (SCHEMA, '{"enum": 18446744073709551617}', "enum"),
        (SCHEMA, '{"enum": {"18446744073709551617": 18446744073709551617}}', "enum"),
        (SCHEMA, '{"type": "integer", "minimum": -1e30, "maximum": -1e29}', "is less than"),
        (LARK, 'start: %json {"allOf": [{"type": "integer"}, {"enum": [1, -1e20]}]}', "is less than"),
        (SCHEMA, '{"contains": {}, "x-guidance": {"lenient": false}}', "contains"),
        (SCHEMA, '{"$ref": "#"}', "no token can follow"),
        (SCHEMA, "false", "nsatisfiable"),
        (SCHEMA, '{"x-guidance": 5}', "JSON schema"),
        (LARK, f'start: %json {{"multipleOf": 1{400 * "0"}}}', "out of range"),
        (SCHEMA, f'{{"multipleOf": 1{400 * "0"}}}', "out of range"),
    ],
)
def test_an_unusable_grammar_is_refused_with_the_compilers_message(
    model: LlamaModel, kind: GrammarKind, source: str, words: str
) -> None:
    with pytest.raises(RequestError, match=words) as raised:
        model.compile(Grammar(kind, source))
    assert (raised.value.param, raised.value.code) == ("grammar", "invalid_grammar")
    assert "no_forcing" not in raised.value.message
    assert "non-verbose" not in raised.value.message


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        (SCHEMA, '{"type": "strin"}', "failed to compile JSON schema: Invalid type: strin"),
        (
            LARK,
            'start: part\npart: %json {"type": "strin"}',
            'failed to compile JSON schema: Invalid type: strin, in {"type": "strin"}',
        ),
        (
            LARK,
            'start: a\na: b\nb: c\nc: "x" %json {} | %json {"type":"x"} | %json {"type": "y"}\n',
            'failed to compile JSON schema: Invalid type: x, in {"type":"x"}',
        ),
        (REGEX, "a{2,1}", 'invalid regex "a{2,1}" (in regex): regex parse error:'),
        (LARK, 'start: "a" | part\npart: /a{2,1}/', 'invalid regex "a{2,1}" (in regex): regex parse error:'),
    ],
)
def test_a_refusal_shows_neither_lines_nor_positions_that_the_author_may_not_have_written(
    model: LlamaModel, kind: GrammarKind, source: str, words: str
) -> None:
    with pytest.raises(RequestError) as raised:
        model.compile(Grammar(kind, source))
    first, *rest = raised.value.message.splitlines()
    assert first == f"the grammar cannot be used: {words}"
    assert not any(" | " in line for line in rest)


@pytest.mark.parametrize(("before", "shown"), [(127, True), (128, False)])
def test_the_schema_at_fault_is_searched_among_as_many_as_there_may_be_tools(
    model: LlamaModel, before: int, shown: bool
) -> None:
    source = " | ".join([*["%json {}"] * before, '%json {"type": "x"}'])
    with pytest.raises(RequestError, match="Invalid type: x") as raised:
        model.compile(Grammar(LARK, f"start: part\npart: {source}"))
    assert raised.value.message.endswith(', in {"type": "x"}') is shown


def test_the_log_names_the_parts_of_a_schema_that_are_not_enforced(
    model: LlamaModel, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "engine.sampling.grammar"):
        model.compile(Grammar(SCHEMA, '{"type": "array", "uniqueItems": true}'))
    assert [vars(record)["why"] for record in caplog.records] == ['Unimplemented keys: ["uniqueItems"]']


HOSTILE = {
    "a long text that is certain": Grammar(REGEX, "a{1000000}"),
    "nested repetitions": Grammar(REGEX, "((((a{1,100}){1,100}){1,100}){1,100}){1,100}"),
    "a state for every past": Grammar(REGEX, "(a|b)*a(a|b){30}"),
    "large classes": Grammar(REGEX, r"(\w{1,1000}\d{1,1000}){1,1000}"),
    "ambiguity": Grammar(LARK, 'start: s\ns: s s | "a" | '),
    "right recursion": Grammar(LARK, 'start: s\ns: /[a-z]/ s | "."'),
    "many lengths": Grammar(SCHEMA, '{"type": "array", "items": {"maxLength": 9999999}, "maxItems": 9999999}'),
    "a long chain of rules": Grammar(
        LARK, "start: r0\n" + "".join(f'r{at}: "a" r{at + 1}\n' for at in range(3_900)) + 'r3900: "z"'
    ),
    "a long chain of references": Grammar(
        SCHEMA,
        json.dumps(
            {"$ref": "#/$defs/0", "$defs": {at: {"items": {"$ref": f"#/$defs/{at + 1}"}} for at in range(1_999)}}
        ),
    ),
    "itself": Grammar(SCHEMA, '{"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}]}'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_grammars_end_soon(model: LlamaModel, name: str) -> None:
    """Each grammar is refused, matches, or fails: no hang, no other exception."""
    with contextlib.suppress(RequestError, DrawError):
        constraint = Constraint(model.compile(HOSTILE[name]), WORKERS)
        for _ in range(30):
            token = int(np.flatnonzero(~constraint.denied())[-1])
            if token in model.end_tokens:
                break
            constraint.accept(token)
        assert constraint.denied().any()


@given(kind=st.sampled_from(GrammarKind), source=st.text(max_size=60))
@settings(max_examples=75 * TIMES)
@repeated
def test_any_text_compiles_or_is_refused(model: LlamaModel, kind: GrammarKind, source: str) -> None:
    with contextlib.suppress(RequestError):
        assert isinstance(model.compile(Grammar(kind, source)), CompiledGrammar)


WORDS = st.sets(st.text("ab t", max_size=4), min_size=1, max_size=6).filter(any)


@given(words=WORDS, picks=st.randoms(use_true_random=False))
@settings(max_examples=30 * TIMES)
@repeated
def test_a_mask_allows_exactly_what_the_grammar_allows(model: LlamaModel, words: set[str], picks: object) -> None:
    grammar = Grammar(LARK, "start: " + " | ".join(json.dumps(word) for word in sorted(words)))
    (end,) = model.end_tokens
    constraint, text = Constraint(model.compile(grammar), WORKERS), b""
    for _ in count():
        allowed = set(np.flatnonzero(~constraint.denied()).tolist())
        expected = {
            token
            for token in range(model.info.vocabulary)
            if (piece := model.piece(token)) and any(word.encode().startswith(text + piece) for word in words)
        }
        assert allowed == expected | ({end} if text.decode() in words else set())
        token = picks.choice(sorted(allowed))  # type: ignore[attr-defined]
        if token == end:
            break
        text += model.piece(token)
        constraint.accept(token)


def test_a_grammar_can_name_control_tokens_by_name_and_by_id(model: LlamaModel, end: int) -> None:
    for source in ('start: "a" </s> "b"', f'start: "a" <[{end}]> "b"'):
        constraint = follow(model, Grammar(LARK, source), "a")
        assert np.flatnonzero(~constraint.denied()).tolist() == [end]
        constraint.accept(end)
        assert not constraint.denied()[byte_tokens(model)[b"b"]]


def test_the_name_of_a_control_token_is_not_the_token(model: LlamaModel, end: int) -> None:
    constraint = follow(model, Grammar(LARK, 'start: "</s>" "<unk>"'), "</s>")
    assert constraint.denied()[end]
    assert constraint.denied()[0], "the unknown token has no text"
    assert not constraint.denied()[byte_tokens(model)[b"<"]]


def test_a_finished_grammar_allows_only_the_end(model: LlamaModel, end: int) -> None:
    constraint = follow(model, Grammar(REGEX, "ab"), "ab")
    assert np.flatnonzero(~constraint.denied()).tolist() == [end]


def test_every_end_token_ends(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    second = byte_tokens(model)[b"z"]
    is_end = llama_cpp.llama_vocab_is_eog
    monkeypatch.setattr(llama_cpp, "llama_vocab_is_eog", lambda vocab, token: token == second or is_end(vocab, token))
    config = EngineConfig(model=str(model_path()), slots=1, context=256, threads=1)
    with LlamaModel(config, lambda _share: None) as two_ends:
        constraint = follow(two_ends, Grammar(REGEX, "ab"), "ab")
        assert set(np.flatnonzero(~constraint.denied()).tolist()) == two_ends.end_tokens
        assert len(two_ends.end_tokens) == 2


def longest_whitespace(model: LlamaModel, grammar: Grammar, before: str) -> int:
    """Return the length of the longest run of whitespace that may follow: any first character, then one repeated."""
    spelling, runs = byte_tokens(model), []
    for opening, more in product(b" \t\r\n", repeat=2):
        constraint, length = follow(model, grammar, before), 0
        while length < 100 and not constraint.denied()[token := spelling[bytes([more if length else opening])]]:
            constraint.accept(token)
            length += 1
        runs.append(length)
    return max(runs)


JSON_GAPS = ["{", '{"a"', '{"a":', '{"a":[', '{"a":[1', '{"a":[1,', '{"a":[1]', '{"a":[1],', '{"a":[1],"b":{']


@pytest.mark.parametrize("before", JSON_GAPS)
@pytest.mark.parametrize("source", ['{"type": "object"}', "true"])
def test_whitespace_of_json_in_lark_is_that_of_other_json(model: LlamaModel, source: str, before: str) -> None:
    grammar = Grammar(LARK, f"start: %json {source}")
    assert longest_whitespace(model, grammar, before) == 1 + 20


@pytest.mark.parametrize("before", JSON_GAPS)
@pytest.mark.parametrize(
    "schema", ['{"type": "object"}', "true", '{"properties": {"a": {"items": {"type": "integer"}}, "b": {}}}']
)
def test_whitespace_in_json_is_one_blank_or_a_line_break_and_an_indentation(
    model: LlamaModel, schema: str, before: str
) -> None:
    grammar = Grammar(SCHEMA, schema)
    assert longest_whitespace(model, grammar, before) == 1 + 20
    assert longest_whitespace(model, grammar, before + " ") == 0
    assert longest_whitespace(model, grammar, before + "\n\t ") == 18


def test_a_schema_may_have_its_own_rule_for_whitespace(model: LlamaModel) -> None:
    compact = Grammar(SCHEMA, '{"type": "array", "x-guidance": {"whitespace_flexible": false}}')
    assert matches(model, compact, "[1,2]")
    assert not matches(model, compact, "[1, 2]")
    wide = Grammar(SCHEMA, '{"type": "array", "x-guidance": {"whitespace_pattern": "[ ]{1,4}"}}')
    assert longest_whitespace(model, wide, "[1,") == 4
    other = Grammar(SCHEMA, '{"type": "array", "x-guidance": {"item_separator": ";"}}')
    assert longest_whitespace(model, other, "[1;") == 1 + 20


def test_sequences_of_one_grammar_have_separate_states(model: LlamaModel) -> None:
    grammar = Grammar(REGEX, "abc|xyz")
    first, second = follow(model, grammar, "ab"), follow(model, grammar, "x")
    spelling = byte_tokens(model)
    assert not first.denied()[spelling[b"c"]]
    assert not second.denied()[spelling[b"y"]]
    assert second.denied()[spelling[b"c"]]


def test_compiled_grammars_are_cached_for_a_while(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_cache, "MOST_GRAMMARS", 2)
    compiler = GrammarCompiler(model._tokenizer.grammar_vocabulary)
    first, second, third = (Grammar(REGEX, f"kept{n}") for n in range(3))
    compiled, forgotten = compiler.compile(first), compiler.compile(second)
    assert compiler.compile(first) is compiled
    compiler.compile(third)
    assert compiler.compile(first) is compiled, "used last"
    assert compiler.compile(second) is not forgotten


def test_a_grammar_is_known_as_compiled_only_after_it_was(model: LlamaModel) -> None:
    compiler, grammar = GrammarCompiler(model._tokenizer.grammar_vocabulary), Grammar(REGEX, "known")
    assert compiler.compiled(grammar) is None
    compiled = compiler.compile(grammar)
    assert compiler.compiled(grammar) is compiled
    assert compiler.compiled(Grammar(LARK, "known")) is None, "another language"


def test_a_grammar_that_cannot_be_compiled_is_compiled_once(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, grammar = GrammarCompiler(model._tokenizer.grammar_vocabulary), Grammar(REGEX, "(")
    with pytest.raises(RequestError) as first:
        compiler.compile(grammar)
    monkeypatch.setattr(compiler, "_compile", pytest.fail)
    for again in (compiler.compile, compiler.compiled):
        with pytest.raises(RequestError) as later:
            again(grammar)
        assert str(later.value) == str(first.value)
        assert (later.value.code, later.value.param) == ("invalid_grammar", "grammar")


def test_a_compiled_grammar_is_found_while_another_one_is_compiled(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, grammar = GrammarCompiler(model._tokenizer.grammar_vocabulary), Grammar(REGEX, "fast")
    compiled, found = compiler.compile(grammar), []

    def find_other(_slow: Grammar) -> CompiledGrammar:
        with ThreadPoolExecutor(1) as thread:
            found.append(thread.submit(compiler.compiled, grammar).result(timeout=20))
        return compiled

    monkeypatch.setattr(compiler, "_compile", find_other)
    compiler.compile(Grammar(REGEX, "slow"))
    assert found == [compiled]


def test_a_grammar_that_exceeded_a_limit_is_compiled_again(model: LlamaModel) -> None:
    grammar = Grammar(REGEX, "((((a{1,100}){1,100}){1,100}){1,100}){1,100}b")
    compiled = model.compile(grammar)
    constraint = Constraint(compiled, WORKERS)
    with pytest.raises(DrawError, match="the grammar cannot go on: lexer error"):  # noqa: PT012
        for _ in range(5000):
            constraint.denied()
            constraint.accept(byte_tokens(model)[b"a"])
    assert compiled.failed
    assert model.compile(grammar) is not compiled


def test_a_token_against_the_grammar_fails_the_sequence_alone(model: LlamaModel) -> None:
    grammar = Grammar(REGEX, "abc")
    wrong, right = (Constraint(model.compile(grammar), WORKERS) for _ in range(2))
    wrong.accept(byte_tokens(model)[b"z"])
    with pytest.raises(DrawError, match="cannot go on"):
        wrong.denied()
    right.accept(byte_tokens(model)[b"a"])
    assert not right.denied()[byte_tokens(model)[b"b"]]


def test_grammars_work_from_many_threads(model: LlamaModel) -> None:
    texts = [f"{n}-{n * 7}" for n in range(40)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda text: matches(model, Grammar(REGEX, r"\d+-\d+"), text), texts))
    assert all(made)


def test_a_model_without_an_end_token_has_no_grammars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "llama_vocab_is_eog", lambda _vocab, _token: False)
    config = EngineConfig(model=str(model_path()), slots=1, context=256, threads=1)
    with LlamaModel(config, lambda _share: None) as endless, pytest.raises(RequestError, match="no token that ends"):
        endless.compile(Grammar(REGEX, "a"))
