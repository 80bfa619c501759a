"""Convert a stream of values in JSON or a similar notation into JSON text."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import orjson

from gateway.chat.formats.source import Emit, Malformed, Reading, Source, Truncated

MAX_DEPTH = 64
"""Maximum depth of nested values. Deeper ones are `Malformed`."""

_SCALAR = re.compile(r"[-+.\w]*", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_UNFINISHED_NUMBER = re.compile(r"-?\d*\.?\d*(?:[eE][-+]?\d*)?", re.ASCII)
BARE_KEY = re.compile(r"[-.$@\w]*")
"""A key without quotes."""
_CODES = {"u": 4, "x": 2, "U": 8}
"""Number of digits in the code of a character, by the letter before it. Python has more letters than JSON."""
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
_LAST_IN_JSON = 0xFFFF
"""Largest code of a character that has one escape in JSON."""


@dataclass(frozen=True, slots=True)
class Notation:
    """Notation of a family for values."""

    quotes: tuple[str, ...] = ('"',)
    """Quotes at both ends of a string. A backslash escapes only inside quotes of one character, also a repeated one."""
    words: Mapping[str, str] = field(default_factory=lambda: {word: word for word in ("true", "false", "null")})
    """JSON text of each keyword."""
    bare_keys: bool = False
    """Allow keys without quotes, and `=` behind a key."""
    late: tuple[str, ...] = ()
    """Quote whose opening models forget, and the text before which it must come then; empty if there is none."""


JSON = Notation()
PYTHON = Notation(quotes=('"', "'"), words={**JSON.words, "True": "true", "False": "false", "None": "null"})
PYTHON_CALL = replace(PYTHON, quotes=(*PYTHON.quotes, '"""', "'''"))
"""Values in a call, in which a text may have triple quotes."""


def quoted(text: str) -> str:
    """Return `text` as a JSON string."""
    return orjson.dumps(text).decode()


def escaped(text: str) -> str:
    """Return `text` escaped for the inside of a JSON string."""
    return quoted(text)[1:-1]


def read_value(source: Source, emit: Emit, notation: Notation = JSON, depth: int = 0) -> Reading[None]:
    """Read a value and emit it as JSON text. All that is emitted is a prefix of some valid JSON.

    Common mistakes of models are repaired: control characters in strings, backslashes that start no escape, and a comma
    behind the last member or item.

    Raises:
        Malformed: at the first character that fits no value.
    """
    if depth > MAX_DEPTH:
        raise Malformed
    opening = yield from source.follows("{", "[", *notation.quotes)
    if opening == "{":
        yield from _read_members(source, emit, notation, depth)
    elif opening == "[":
        yield from _read_items(source, emit, notation, depth)
    elif opening:
        yield from _read_string(source, emit, opening)
    else:
        yield from _read_scalar(source, emit, notation)


def read_string(source: Source) -> Reading[str]:
    """Read a JSON string, and return its value.

    Raises:
        Malformed: if no string comes next.
    """
    parts: list[str] = []
    quote = yield from source.expect('"')
    yield from _read_string(source, parts.append, quote)
    try:
        return str(orjson.loads("".join(parts)))
    except orjson.JSONDecodeError as error:  # half of a surrogate pair
        raise Malformed from error


def as_json(text: str) -> str | None:
    """Return `text` as JSON if it is a value in Python's notation or JSON, else None."""
    parts: list[str] = []
    source = Source()
    source.push(f"{text.strip()}\n")  # a scalar is complete once other text follows
    source.end()
    try:
        for _ in read_value(source, parts.append, PYTHON):
            raise AssertionError("the text is there")
    except Malformed:
        return None
    return "".join(parts) if not source.rest().strip() else None


def _read_members(source: Source, emit: Emit, notation: Notation, depth: int) -> Reading[None]:
    emit("{")
    yield from source.skip_whitespace(emit)
    separator = yield from source.follows("}")
    while separator != "}":
        yield from _read_key(source, emit, notation)
        yield from source.skip_whitespace(emit)
        yield from source.expect(":", *(("=",) if notation.bare_keys else ()))
        emit(":")
        yield from source.skip_whitespace(emit)
        yield from read_value(source, emit, notation, depth + 1)
        yield from source.skip_whitespace(emit)
        separator = yield from _read_separator(source, emit, "}")
    emit("}")


def _read_items(source: Source, emit: Emit, notation: Notation, depth: int) -> Reading[None]:
    emit("[")
    yield from source.skip_whitespace(emit)
    separator = yield from source.follows("]")
    while separator != "]":
        yield from read_value(source, emit, notation, depth + 1)
        yield from source.skip_whitespace(emit)
        separator = yield from _read_separator(source, emit, "]")
    emit("]")


def _read_separator(source: Source, emit: Emit, closing: str) -> Reading[str]:
    """Read a comma, and emit it if anything but `closing` follows; or read `closing`. Return what is read last."""
    separator = yield from source.expect(",", closing)
    if separator == closing:
        return separator
    blanks: list[str] = []
    yield from source.skip_whitespace(blanks.append)
    last = yield from source.follows(closing)
    emit("".join(blanks if last else [separator, *blanks]))
    return last or separator


def _read_key(source: Source, emit: Emit, notation: Notation) -> Reading[None]:
    quote = yield from source.follows(*notation.quotes)
    if quote:
        yield from _read_string(source, emit, quote)
        return
    key = (yield from source.word(BARE_KEY)) if notation.bare_keys else ""
    if not key:
        raise Truncated if source.ends_in(*notation.quotes) else Malformed
    emit(quoted(key))


def _read_string(source: Source, emit: Emit, quote: str) -> Reading[None]:
    """Read the rest of a string after its opening quote."""
    emit('"')
    markers = (quote, "\\") if len(set(quote)) == 1 else (quote,)
    while True:
        marker = yield from source.until(markers, lambda text: emit(escaped(text)))
        if marker is None:
            raise Truncated
        if marker == quote:
            emit('"')
            return
        yield from _read_escape(source, emit)


def _read_escape(source: Source, emit: Emit) -> Reading[None]:
    """Read an escape after its backslash. Emit no text for an escape that the end of the text truncates."""
    kind = yield from source.peek()
    if not kind:
        raise Truncated
    if kind in _CODES:
        source.take(1)
        yield from _read_code(source, emit, kind)
    elif kind in '"\\/bfnrt':
        emit("\\" + source.take(1))
    elif kind == "'":
        emit(source.take(1))
    else:
        emit("\\\\")


def _read_code(source: Source, emit: Emit, kind: str) -> Reading[None]:
    digits = ""
    while len(digits) < _CODES[kind]:
        digit = yield from source.peek()
        if not digit:
            raise Truncated
        if digit not in _HEXADECIMAL:
            emit(f"\\\\{kind}{digits}")
            return
        digits += source.take(1)
    if (code := int(digits, 16)) > sys.maxunicode:
        emit(f"\\\\{kind}{digits}")
    else:
        emit(escaped(chr(code)) if code > _LAST_IN_JSON else f"\\u{digits[-4:]:0>4}")


def _read_scalar(source: Source, emit: Emit, notation: Notation) -> Reading[None]:
    word = yield from source.word(_SCALAR)
    if source.finished():
        if _UNFINISHED_NUMBER.fullmatch(word):
            emit(word)
        raise Truncated
    if word in notation.words:
        emit(notation.words[word])
    elif _NUMBER.fullmatch(word):
        emit(word)
    else:
        source.put_back(len(word))
        if source.ends_in(*notation.quotes):
            raise Truncated
        yield from _read_unopened(source, emit, notation)


def _read_unopened(source: Source, emit: Emit, notation: Notation) -> Reading[None]:
    """Read a string that has only its closing quote, if the notation allows that."""
    parts: list[str] = []
    source.hold()
    found = (yield from source.until(notation.late, parts.append)) if notation.late else None
    if found is None or found != notation.late[0]:
        cut = source.finished()
        source.rewind()
        raise Truncated if notation.late and cut else Malformed
    source.commit()
    emit(quoted("".join(parts)))
