"""The cache of compiled grammars: bounded in number and size, with the latest used kept."""

import pytest

from engine.errors import RequestError
from engine.request import Grammar, GrammarKind
from engine.sampling import grammar_cache
from engine.sampling.grammar_cache import GrammarCache


def grammar(name: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, name)


def kept(cache: GrammarCache[str], *names: str) -> list[bool]:
    return [cache.find(grammar(name)) is not None for name in names]


def test_the_least_recently_used_grammar_is_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_cache, "MOST_GRAMMARS", 2)
    cache: GrammarCache[str] = GrammarCache()
    for name in ("a", "b"):
        cache.keep(grammar(name), name)
    cache.find(grammar("a"))
    cache.keep(grammar("c"), "c")
    assert kept(cache, "a", "b", "c") == [True, False, True]


def test_the_sources_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_cache, "MOST_CHARACTERS", 10)
    cache: GrammarCache[str] = GrammarCache()
    for name in ("four", "five5", "x", "x"):
        cache.keep(grammar(name), name)
    assert kept(cache, "four", "five5", "x") == [True, True, True]
    cache.keep(grammar("seven77"), "seven77")
    assert kept(cache, "four", "five5", "x", "seven77") == [False, False, True, True]


def test_an_error_is_raised_as_a_new_one_each_time() -> None:
    cache: GrammarCache[str] = GrammarCache()
    cache.keep(grammar("("), RequestError("unclosed", code="invalid_grammar", param="grammar"))
    errors = []
    for _ in range(2):
        with pytest.raises(RequestError, match="unclosed") as raised:
            cache.find(grammar("("))
        errors.append(raised.value)
    assert errors[0] is not errors[1], "a raised one grows a traceback"
    assert (errors[1].code, errors[1].param) == ("invalid_grammar", "grammar")
