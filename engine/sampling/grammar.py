"""Grammars compiled by llguidance, for masks over the vocabulary."""

import json
import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, regex_to_lark
from llguidance.gbnf_to_lark import gbnf_to_lark

from engine.errors import RequestError
from engine.request import MOST_GRAMMAR_CHARACTERS, Grammar, GrammarKind
from engine.sampling.candidates import Mask
from engine.sampling.grammar_bounds import (
    GrammarError,
    check_gbnf,
    check_lark,
    check_numbers,
    check_regex,
    check_schemas,
    inline_schemas,
)
from engine.sampling.grammar_cache import GrammarCache
from engine.sampling.json_schemas import closed
from engine.sampling.native_calls import on_deep_stack
from engine.sampling.number_limit import NumberLimit

logger = logging.getLogger(__name__)

_LIMITS = LLParserLimits(
    max_items_in_row=2000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=100_000,
    step_max_items=50_000,
    max_lexer_states=20_000,
    max_grammar_size=25_000,
    precompute_large_lexemes=False,
    verbose_errors=False,
)
"""Within the bounds of `grammar_bounds`, the most expensive grammars found take 1 s to compile, 0.06 s a mask and 120
MB."""
_OPTIONS = '%llguidance {"no_forcing": true}'
"""Without it llguidance computes all text that is certain to come, up to a million bytes, before it returns a mask."""
_JSON = "%json"
_LINES = re.compile(r"\n +\d+ \| ")
"""Beginning of the lines of a grammar that the compiler shows behind its message."""
_POSITION = re.compile(r"\Aat \d+\(\d+\): ")
"""Line and column in a grammar, at the beginning of a message."""
_OF_SCHEMA = "failed to compile JSON schema"
"""Beginning of messages about JSON schemas."""
_SHOWN = 100
"""Characters of a schema in a message."""
_SEARCHED = 128
"""Schemas among which the one that cannot be compiled is searched: each takes a millisecond by itself, and there are as
many tools."""
_SELF_CONTAINED = (_OF_SCHEMA, "invalid regex ")
"""Beginnings of messages that need no lines of the grammar."""
_TERSE = "\n<non-verbose/>"
_DEAD_END = "NoExtension"
"""Beginning of the compiler's names for a place where no token can follow."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model, as llguidance asks for them."""

    tokens: list[bytes]
    """The text of each token by its id; of a control token its name."""
    special_token_ids: list[int]
    """The ids of the control tokens."""
    end_tokens: frozenset[int]
    """The ids that end a generation."""
    tokenize: Callable[[str], list[int]]
    """Returns the token ids of a text without control tokens. Any thread may call it."""
    bos_token_id: None = None

    @property
    def eos_token_id(self) -> int:
        """The first of the ids that end a generation."""
        return min(self.end_tokens)

    def __call__(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return self.tokenize(text)


@dataclass(slots=True)
class CompiledGrammar:
    """A grammar for any number of sequences. Each sequence copies the matcher."""

    matcher: LLMatcher
    """At the beginning of a text. The copies share the states of its lexer, under a lock."""
    denied: Mask
    """The tokens that cannot begin a text."""
    numbers: NumberLimit | None = None
    """Limits the numbers of its JSON; unset if it has no JSON schema."""
    failed: bool = False
    """True if a copy has reached a limit. Copies share what they have used up, so it must not be used again."""


class GrammarCompiler:
    """Compiles grammars and keeps the latest ones. Any thread may use it."""

    def __init__(self, read_vocabulary: Callable[[], Vocabulary]) -> None:
        """Start without grammars. `read_vocabulary` may take long, and is called for the first one."""
        self._read_vocabulary = read_vocabulary
        self._opened: tuple[Vocabulary, LLTokenizer, NumberLimit] | None = None
        self._cache: GrammarCache[CompiledGrammar] = GrammarCache()
        self._compiling = threading.Lock()

    def compiled(self, grammar: Grammar) -> CompiledGrammar | None:
        """Return a grammar if it is compiled already. Never waits for `compile`.

        Raises:
            RequestError: the grammar cannot be compiled, as `compile` has found before.
        """
        kept = self._cache.find(grammar)
        return None if kept is None or kept.failed else kept

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Compile a grammar. May take long; the first call takes a second more with a large vocabulary.

        Raises:
            RequestError: the grammar cannot be compiled.
        """
        with self._compiling:
            if (known := self.compiled(grammar)) is not None:
                return known
            try:
                compiled = on_deep_stack(partial(self._compile, grammar))
            except RequestError as error:
                self._cache.keep(grammar, RequestError(error.message, code=error.code, param=error.param))
                raise
            self._cache.keep(grammar, compiled)
            return compiled

    def _compile(self, grammar: Grammar) -> CompiledGrammar:
        try:
            lark = to_lark(grammar)
            vocabulary, lltokenizer, numbers = self._open_vocabulary()
            matcher = _matcher(lltokenizer, lark)
            denied = denied_tokens(matcher, len(vocabulary.tokens))
            _check_not_empty(denied, vocabulary.end_tokens)
            if ignored := matcher.get_grammar_warnings():
                logger.info("parts of a JSON schema are not enforced", extra={"why": "; ".join(ignored)})
            return CompiledGrammar(matcher, denied, numbers if _JSON in lark else None)
        except GrammarError as error:
            words = _words_for(grammar.kind, str(error))
            if grammar.kind is GrammarKind.LARK and words.startswith(_OF_SCHEMA):
                words += self._schema_at_fault(grammar.source)
            words = f"the grammar cannot be used: {words}"
            raise RequestError(words, param="grammar", code="invalid_grammar") from error

    def _schema_at_fault(self, source: str) -> str:
        """Return the words for the first JSON schema of a grammar that cannot be compiled: one of many tools'."""
        _, lltokenizer, _ = self._open_vocabulary()
        for inline in islice(inline_schemas(source), _SEARCHED):
            if _matcher(lltokenizer, f"start: {_JSON} {_closed(inline.schema)}").is_error():
                schema = source[inline.begin : inline.end].strip()
                return f", in {schema if len(schema) <= _SHOWN else f'{schema[:_SHOWN]}…'}"
        return ""

    def _open_vocabulary(self) -> tuple[Vocabulary, LLTokenizer, NumberLimit]:
        """Return the vocabulary, also for llguidance and for the numbers.

        Raises:
            GrammarError: the model has no end token.
        """
        if self._opened is None:
            vocabulary = self._read_vocabulary()
            if not vocabulary.end_tokens:
                raise GrammarError("this model has no token that ends a text")
            lltokenizer = LLTokenizer(TokenizerWrapper(vocabulary), eos_token=sorted(vocabulary.end_tokens))
            self._opened = vocabulary, lltokenizer, NumberLimit(vocabulary.tokens)
        return self._opened


def _matcher(lltokenizer: LLTokenizer, lark: str) -> LLMatcher:
    """Return the matcher of a grammar. It may be one of an error."""
    source = LLMatcher.grammar_from_lark(f"{lark}\n{_OPTIONS}\n")
    return LLMatcher(lltokenizer, source, log_level=0, limits=_LIMITS)


def denied_tokens(matcher: LLMatcher, vocabulary: int) -> Mask:
    """Return the mask of the tokens that cannot come next. Releases the interpreter's lock meanwhile.

    Raises:
        GrammarError: the grammar cannot continue.
    """
    allowed = matcher.compute_bitmask() if not matcher.is_error() else b""
    if matcher.is_error():
        reason = matcher.get_error().removesuffix(_TERSE)
        raise GrammarError("no token can follow" if reason.startswith(_DEAD_END) else reason)
    denied: Mask = np.unpackbits(np.frombuffer(allowed, np.uint8), count=vocabulary, bitorder="little") == 0
    return denied


def _check_not_empty(denied: Mask, end_tokens: frozenset[int]) -> None:
    """Check that a text may begin with another token than its end. Such a grammar's answers would all be empty.

    Raises:
        GrammarError: only the end may come first.
    """
    if end_tokens.issuperset(np.flatnonzero(~denied).tolist()):
        raise GrammarError("it allows only the empty text")


def _words_for(kind: GrammarKind, words: str) -> str:
    """Return the compiler's message without lines that the author of the grammar did not write, and positions in them.

    Those of a grammar with JSON schemas or regular expressions may be the gateway's.
    """
    first, *_ = _LINES.split(words, maxsplit=1)
    if kind in (GrammarKind.JSON_SCHEMA, GrammarKind.REGEX) or any(part in first for part in _SELF_CONTAINED):
        return _POSITION.sub("", first, count=1)
    return "\n".join(line for line in words.splitlines() if not line.endswith(_OPTIONS))


def to_lark(grammar: Grammar) -> str:
    """Return a grammar in Lark's language, with JSON schemas for generation.

    Raises:
        GrammarError: the grammar is invalid or out of bounds.
    """
    if len(grammar.source) > MOST_GRAMMAR_CHARACTERS:
        raise GrammarError(f"it has more than {MOST_GRAMMAR_CHARACTERS} characters")
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return f"start: {_JSON} {_schema(grammar.source)}"
        case GrammarKind.REGEX:
            check_regex(grammar.source)
            return f"start: /{regex_to_lark(grammar.source)}/"
        case GrammarKind.LARK:
            return _from_lark(grammar.source)
        case GrammarKind.GBNF:
            return _from_gbnf(grammar.source)


def _schema(source: str) -> str:
    try:
        schema = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"not JSON: {error}") from error
    check_schemas(schema)
    return _closed(schema)


def _closed(schema: object) -> str:
    """Return a schema for llguidance as JSON: see `closed`.

    Raises:
        GrammarError: a number in the schema is too small, or it is too deep to be written, although it could be read.
    """
    schema = {} if schema is True else schema  # both allow any JSON, but only an object can bound whitespace
    made = closed(schema) if isinstance(schema, dict) else schema
    check_numbers(made)
    try:
        return json.dumps(made)
    except RecursionError as error:
        raise GrammarError("its JSON schema is too deep") from error


def _from_lark(source: str) -> str:
    """Return a grammar whose JSON schemas are closed."""
    check_lark(source)
    parts, end = [], 0
    for inline in inline_schemas(source):
        parts += [source[end : inline.begin], _closed(inline.schema)]
        end = inline.end
    return "".join((*parts, source[end:]))


def _from_gbnf(source: str) -> str:
    check_gbnf(source)
    try:
        return gbnf_to_lark(source)
    except Exception as error:  # the converter raises bare exceptions
        raise GrammarError(str(error) or "not GBNF") from error
