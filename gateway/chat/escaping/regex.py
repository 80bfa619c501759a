"""Regular expressions of texts that are escaped, as expressions of Lark.

An escaping replaces single characters. So an expression for a text becomes one for the escaped text if it is
applied to each character and each class. llguidance's lexer takes the longest match and never goes back, so that each
escape is a lexeme of its own: all others end where an escape begins.
"""

import re
import warnings
from collections.abc import Callable, Iterator

from engine import RequestError
from gateway.chat.escaping.characters import EMPTY, Escaping

_ATOM = re.compile(
    r"""(?P<atom>\[\^?\]?(?:[^\]\\]|\\.)*\]
        | \\[pP]\{\^?\w+\} | \\x[0-9a-fA-F]{2} | \\u[0-9a-fA-F]{4} | \\. | [^()|*+?{}\\\[])
    |(?P<quantifier>[*+?]\??|\{\d+(?:,\d*)?\}\??)
    |(?P<begin>\((?:\?:)?)
    |(?P<mark>[)|])
    |(?P<foreign>\[.*|.)""",
    re.VERBOSE | re.DOTALL,
)
_ANY = {False: r"[^\n]", True: r"[\s\S]"}
"""Class that a dot matches, without and with the flag `s`."""
_LETTERS = re.compile(r"\\p\{?[LN]\w*\}?")


def escaped_regex(escaping: Escaping, pattern: str, flags: str = "") -> str:
    """Return the expression for the escaped texts of those that `pattern` matches.

    Raises:
        RequestError: it has parts that cannot be escaped.
    """
    if set(flags) - set("isu"):
        raise _refused(f"the flags {flags[:100]}")
    return f"({' '.join(_parts(escaping, pattern, flags))})"


def escaped_class(escaping: Escaping, given: str, quantifier: str = "", flags: str = "") -> str:
    """Return the expression for the escaped characters of a class, and its quantifier.

    Raises:
        RequestError: it is not a plain class.
    """
    dotall = "s" in flags
    has = _members(given, dotall=dotall)
    special = list(filter(has, escaping.characters))
    repeated = quantifier[:1] in {"*", "+"}
    ignoring = "i" if "i" in flags else ""
    plain = f"[{_ANY[dotall] if given == '.' else given}&&{escaping.others}]" if special else given
    lexemes = [] if len(special) == 1 and given not in {".", "[", "]"} and _is_one(given) else [plain]
    written = [f"/{one}{'+' if repeated else ''}/{ignoring}" for one in lexemes]
    escaped = [escaping.beginning(has)] if special and repeated and escaping.tag else map(escaping.escape, special)
    return f"({' | '.join([*written, *escaped])}){quantifier}"


def _parts(escaping: Escaping, pattern: str, flags: str) -> Iterator[str]:
    """Yield the parts of an expression of Lark."""
    found = list(_ATOM.finditer(pattern))
    before = "("
    for at, one in enumerate(found):
        text, kind = one.group(), one.lastgroup
        following = found[at + 1] if at + 1 < len(found) else None
        if kind == "foreign" or (kind == "begin" and following and following.group()[0] == "?"):
            raise _refused(f"{pattern[one.start() : one.start() + 20]!r}")
        if kind == "mark" and before in {"(", "|"}:
            yield EMPTY
        if kind == "atom":
            quantified = following and following.lastgroup == "quantifier"
            yield escaped_class(
                escaping, text, following.group().rstrip("?") or "?" if quantified and following else "", flags
            )
        elif kind == "quantifier" and found[at - 1].lastgroup != "atom":
            yield text.rstrip("?") or "?"
        elif kind in {"begin", "mark"}:
            yield text[0]
        before = text[0] if kind in {"begin", "mark"} else ""
    if before in {"(", "|"}:
        yield EMPTY


def _is_one(atom: str) -> bool:
    """Return whether an atom is a single character, not a class."""
    return not (atom.startswith("[") or atom in {r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"})


def _members(given: str, *, dotall: bool) -> Callable[[str], bool]:
    """Return whether an atom matches a character, for characters that may be escaped and for those of tags."""
    if given == ".":
        return lambda one: one != "\n" or dotall
    if _LETTERS.fullmatch(given):
        return str.isalnum
    if re.search(r"[\[]|&&|--|~~", given[1:]) and given != r"\[":
        raise _refused(f"the class {given[:100]}, which has others inside")
    try:
        with warnings.catch_warnings(action="ignore"):
            known = re.compile(given, re.ASCII)
    except re.error as error:
        raise _refused(given[:100]) from error
    return lambda one: bool(known.fullmatch(one))


def _refused(what: str) -> RequestError:
    message = f"The grammar of a custom tool: this model's calls cannot have {what} in a regular expression."
    return RequestError(message, code="invalid_value", param="tools")
