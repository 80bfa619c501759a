"""Escaped grammars: a text matches a grammar where its JSON string matches the escaped one."""

import json

import pytest

from engine import MOST_GRAMMAR_CHARACTERS, Grammar, GrammarKind, RequestError
from gateway.chat.escaping.characters import IN_JSON, Escaping, before
from gateway.chat.escaping.lark import escaped_lark
from tests.grammar_matching import Vocabulary

VOCABULARY = Vocabulary()

PATCH = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+ // a new file
update_hunk: "*** Update File: " filename LF change?
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
change: (change_context | change_line)+
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
%import common.LF
"""
PATCHED = '*** Begin Patch\n*** Add File: a "b"\n+x = "\\n"\n+\n*** Update File: c\n@@ d\n-a\n+\tb\n*** End Patch\n'


@pytest.mark.parametrize(
    ("source", "right", "wrong"),
    [
        (PATCH, [PATCHED], [PATCHED[:-4], "*** Begin Patch\n*** End Patch\n", PATCHED.replace("+x", "x")]),
        ('start: A _B+\nA: /[^"]/i\n_B: "b\\n"i', ["ab\n", "\\B\nb\n", "\x01b\n"], ['"b\n', "ab"]),
        (r"start: /.+/s", ['a\n"', '\\""'], [""]),
        (r"start: /\s\S\w\W\d\D/", [' "a"1\\', "\n\\_\t0\n"], ['  a"1\\', ' "aa1a']),
        (r'start: /[\n"]{2}\x22\t?\\?/', ['\n""', '"""\t\\'], ['\n"', 'aa"']),
        (r'start: /(a|b|)c{2,3}d?(\n|"z")*?/', ["cc", "acccd\n", 'bcc"z"\n'], ["c", "abcc"]),
        (r'start: "!".."~" /\p{L}+/', ['"é', "\\ab"], [" a", '"1']),
        ("start: WORD (WS WORD)*\n%import common (WORD, WS)", ["a b\n\tc"], ["a 1", "a "]),
        ("start: N\n%import common.NUMBER -> N", ["1.5e3", "7"], ["e", "1."[:0]]),
        ("start: ESCAPED_STRING\n%import common.ESCAPED_STRING", [r'"a\"b"'], ['"a"b"', '"a']),
    ],
)
def test_a_text_matches_as_its_json_string_does(source: str, right: list[str], wrong: list[str]) -> None:
    plain = Grammar(GrammarKind.LARK, f"start: %lark {{\n{source}\n}}")
    escaped = Grammar(GrammarKind.LARK, f'start: "\\"" %lark {{\n{escaped_lark(IN_JSON, source)}\n}} "\\""')
    for text in (*right, *wrong):
        expected = text in right
        assert VOCABULARY.allows(escaped, json.dumps(text, ensure_ascii=False)) is expected, text
        assert VOCABULARY.allows(plain, text) is expected, text


@pytest.mark.parametrize(
    ("source", "right", "wrong"),
    [
        (PATCH, [PATCHED, PATCHED.replace("+x", "+<b></end")], [PATCHED[:-4], PATCHED.replace("+x", "x")]),
        (r"start: /.+/s", ["a<", "\n<</en", "<b></b></ends>"], [""]),
        (r"start: /[<\/a]+/", ["a</a<"], ["</e"]),
        (r'start: "a<b" /[^b]*/ "<"', ["a<b<", "a<bc<d<<"], ["a<b", "a<bb<"]),
        (r"start: /x.+/", ["xa", "x<i>"], ["x", "xa\nb"]),
    ],
)
def test_a_text_before_a_tag_matches_and_ends_there(source: str, right: list[str], wrong: list[str]) -> None:
    tag = "</end>"
    escaped = Grammar(GrammarKind.LARK, f'start: %lark {{\n{escaped_lark(before(tag), source)}\n}} "{tag}"')
    for text in (*right, *wrong):
        assert VOCABULARY.allows(escaped, text + tag) is (text in right), text


HALF_MOST = MOST_GRAMMAR_CHARACTERS // 2
"""As many pairs of characters as a grammar may have. Steps quadratic in them would take longer than any test may."""


@pytest.mark.parametrize("escaping", [IN_JSON, before("</end>")])
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('start: "' + '\\"' * HALF_MOST, "no end"),
        ("start: /" + "\\/" * HALF_MOST, "no end"),
        ("start: " + "<" * HALF_MOST, "cannot have <"),
        ("a" + "[ " * HALF_MOST, r"cannot have a\["),
        ("start: /" + "[" * HALF_MOST + "/", "regular expression"),
        ("start: /" + "[a" * HALF_MOST + "/", "regular expression"),
    ],
)
def test_hostile_grammars_are_refused_in_linear_time(source: str, words: str, escaping: Escaping) -> None:
    with pytest.raises(RequestError, match=words):
        escaped_lark(escaping, source)


@pytest.mark.parametrize("escaping", [IN_JSON, before("</end>")])
def test_empty_lines_are_read_in_linear_time(escaping: Escaping) -> None:
    assert escaped_lark(escaping, "\n " * HALF_MOST) == "\n " * HALF_MOST
