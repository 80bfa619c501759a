"""Regular expressions of texts that are inside of JSON strings, as expressions of Lark.

JSON's escaping replaces single characters. So an expression for a text becomes one for the escaped text if it is
applied to each character and each class. llguidance's lexer takes the longest match and never goes back, so that each
escape is a lexeme of its own: all others end where an escape begins.
"""

import json
import re
import warnings
from collections.abc import Iterator

from engine import RequestError

_SPECIAL = [chr(code) for code in range(0x20)] + ['"', "\\"]
"""Characters that JSON escapes."""
_PLAIN = r'[^"\\\x00-\x1f]'
_ATOM = re.compile(
    r"""(?P<atom>\[\^?\]?(?:[^\]\\]|\\.)*\]
        | \\[pP]\{\^?\w+\} | \\x[0-9a-fA-F]{2} | \\u[0-9a-fA-F]{4} | \\. | [^()|*+?{}\\\[])
    |(?P<quantifier>[*+?]\??|\{\d+(?:,\d*)?\}\??)
    |(?P<begin>\((?:\?:)?)
    |(?P<mark>[)|])
    |(?P<foreign>.)""",
    re.VERBOSE | re.DOTALL,
)
_LETTERS = re.compile(r"\\p\{?[LN]\w*\}?")
_EMPTY = '""'


def escaped_regex(pattern: str, flags: str = "") -> str:
    """Return the expression for the escaped texts of those that `pattern` matches.

    Raises:
        RequestError: it has parts that cannot be escaped.
    """
    if set(flags) - set("isu"):
        raise _refused(f"the flags {flags[:100]}")
    return f"({' '.join(_parts(pattern, flags))})"


def escaped_class(given: str, quantifier: str = "", flags: str = "") -> str:
    """Return the expression for the escaped characters of a class, and its quantifier.

    Raises:
        RequestError: it is not a plain class.
    """
    special = _special(given, dotall="s" in flags)
    repeated = quantifier[:1] in {"*", "+"}
    ignoring = "i" if "i" in flags else ""
    plain = _PLAIN if given == "." else f"[{given}&&{_PLAIN}]" if special else given
    lexemes = [] if len(special) == 1 and given not in {".", "[", "]"} and _is_one(given) else [plain]
    written = [f"/{one}{'+' if repeated else ''}/{ignoring}" for one in lexemes]
    return f"({' | '.join([*written, *map(escape, special)])}){quantifier}"


def escape(character: str) -> str:
    """Return the expression for JSON's escape of a character."""
    return json.dumps(json.dumps(character)[1:-1])


def escaped_text(text: str, flags: str = "") -> str:
    """Return the expression for a text that is escaped."""
    parts = re.split(r'(["\\\x00-\x1f])', text)
    written = [
        escape(part) if part in _SPECIAL else json.dumps(part, ensure_ascii=False) + flags for part in parts if part
    ]
    return f"({' '.join(written or [_EMPTY])})"


def _parts(pattern: str, flags: str) -> Iterator[str]:
    """Yield the parts of an expression of Lark."""
    found = list(_ATOM.finditer(pattern))
    before = "("
    for at, one in enumerate(found):
        text, kind = one.group(), one.lastgroup
        following = found[at + 1] if at + 1 < len(found) else None
        if kind == "foreign" or (kind == "begin" and following and following.group()[0] == "?"):
            raise _refused(f"{pattern[one.start() : one.start() + 20]!r}")
        if kind == "mark" and before in {"(", "|"}:
            yield _EMPTY
        if kind == "atom":
            quantified = following and following.lastgroup == "quantifier"
            yield escaped_class(text, following.group().rstrip("?") or "?" if quantified and following else "", flags)
        elif kind == "quantifier" and found[at - 1].lastgroup != "atom":
            yield text.rstrip("?") or "?"
        elif kind in {"begin", "mark"}:
            yield text[0]
        before = text[0] if kind in {"begin", "mark"} else ""
    if before in {"(", "|"}:
        yield _EMPTY


def _is_one(atom: str) -> bool:
    """Return whether an atom is a single character, not a class."""
    return not (atom.startswith("[") or atom in {r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"})


def _special(given: str, *, dotall: bool) -> list[str]:
    """Return the characters of an atom that JSON escapes."""
    if given == ".":
        return [one for one in _SPECIAL if one != "\n" or dotall]
    if _LETTERS.fullmatch(given):
        return []
    if re.search(r"[\[]|&&|--|~~", given[1:]) and given != r"\[":
        raise _refused(f"the class {given[:100]}, which has others inside")
    try:
        with warnings.catch_warnings(action="ignore"):
            known = re.compile(given, re.ASCII)
    except re.error as error:
        raise _refused(given[:100]) from error
    return [one for one in _SPECIAL if known.fullmatch(one)]


def _refused(what: str) -> RequestError:
    message = f"The grammar of a custom tool: this model's calls cannot have {what} in a regular expression."
    return RequestError(message, code="invalid_value", param="tools")
