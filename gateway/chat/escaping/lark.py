"""Lark grammars of texts that are escaped, as `gateway.chat.escaping.regex` makes expressions of them.

All terminals become rules, because a terminal with escapes is more than one lexeme.
"""

import json
import re

from engine import RequestError
from gateway.chat.escaping.characters import Escaping
from gateway.chat.escaping.regex import escaped_class, escaped_regex

_IMPORTED = {
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
    "ESCAPED_STRING": r'"([^"\\\n]|\\[^\n])*"',
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "SQL_COMMENT": r"--[^\n]*",
    "DIGIT": r"[0-9]",
    "HEXDIGIT": r"[a-fA-F0-9]",
    "INT": r"[0-9]+",
    "SIGNED_INT": r"[+\-]?[0-9]+",
    "DECIMAL": r"([0-9]+\.[0-9]*|\.[0-9]+)",
    "FLOAT": r"([0-9]+[eE][+\-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+\-]?[0-9]+)?)",
    "NUMBER": r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?",
    "SIGNED_NUMBER": r"[+\-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?",
    "LCASE_LETTER": r"[a-z]",
    "UCASE_LETTER": r"[A-Z]",
    "LETTER": r"[a-zA-Z]",
    "WORD": r"[a-zA-Z]+",
    "CNAME": r"[a-zA-Z_][a-zA-Z0-9_]*",
}
"""The terminals of Lark's library `common`."""

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""(?P<comment>(?://|\#)[^\n]*)
    |(?P<import>%import\s+common\s*(?:\.\s*\w+(?:\s*->\s*\w+)?|\([\w\s,]*\)))
    |(?P<range>{_STRING}\s*\.\.\s*{_STRING})
    |(?P<string>{_STRING}i?)
    |(?P<regex>/(?![/*])(?:[^/\\\n]|\\.)+/[a-z]*)
    |(?P<alias>->\s*\w+)
    |(?P<terminal>\b_*[A-Z]\w*(?:\.\d+(?=\s*:))?)
    |(?P<foreign>%\w+|<[^<>\n]*>?|~(?!\s*\d)|&|^[^\S\n]*\w+\[[^\]\n]*\]?)
    |(?P<open>"[^\n]*|/[^\n]*)""",
    re.VERBOSE | re.MULTILINE,
)
"""Each part also matches without its end: if each quote in it were tried as a beginning, that would be quadratic."""


def escaped_lark(escaping: Escaping, source: str) -> str:
    """Return the grammar of the escaped texts of another grammar.

    Raises:
        RequestError: the grammar uses extensions of Lark, or cannot be escaped.
    """

    def escaped(found: re.Match[str]) -> str:
        given = found.group()
        match found.lastgroup:
            case "comment" | "alias":
                return ""
            case "import":
                return _import(escaping, given)
            case "range":
                return _range(escaping, given)
            case "string":
                return _string(escaping, given)
            case "regex":
                pattern, _, flags = given[1:].rpartition("/")
                return escaped_regex(escaping, pattern, flags)
            case "terminal":
                return _rule(given)
            case "open":
                raise _refused(f"{given[:100]} has no end")
            case _:
                raise _refused(f"this model's calls cannot have {given.strip()[:100]}")

    return _TOKEN.sub(escaped, source)


def _string(escaping: Escaping, literal: str) -> str:
    quoted, _, flags = literal.rpartition('"')
    return escaping.text(_decoded(f'{quoted}"'), flags)


def _decoded(literal: str) -> str:
    try:
        text: str = json.loads(literal, strict=False)
    except ValueError as error:
        raise _refused(f"the literal {literal[:100]} is invalid") from error
    return text


def _range(escaping: Escaping, given: str) -> str:
    first, last = (_decoded(literal) for literal in re.findall(_STRING, given))
    if len(first) != 1 or len(last) != 1:
        raise _refused(f"the range {given[:100]} is not between two characters")
    return escaped_class(escaping, f"[{re.escape(first)}-{re.escape(last)}]")


def _import(escaping: Escaping, given: str) -> str:
    names: list[str] = re.findall(r"\w+(?:\s*->\s*\w+)?", given.split("common", 1)[1])
    return "\n".join(_imported(escaping, name) for name in names)


def _imported(escaping: Escaping, name: str) -> str:
    """Return the definition of an imported terminal."""
    original, _, alias = (part.strip() for part in name.partition("->"))
    if original not in _IMPORTED:
        raise _refused(f"common.{original[:100]} cannot be imported")
    return f"{_rule(alias or original)}: {escaped_regex(escaping, _IMPORTED[original])}"


def _rule(terminal: str) -> str:
    """Return the name of the rule in place of a terminal."""
    return f"terminal_{terminal.partition('.')[0].lower()}"


def _refused(reason: str) -> RequestError:
    return RequestError(f"The grammar of a custom tool: {reason}.", code="invalid_value", param="tools")
