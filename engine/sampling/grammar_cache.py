"""Grammars that were compiled, or could not be, for the next request with the same one."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from engine.errors import RequestError
from engine.request import Grammar

CompiledT = TypeVar("CompiledT")

MOST_GRAMMARS = 16
"""Number of grammars. A compiled one has a mask of the vocabulary, and up to some ten MB of lexer states."""
MOST_CHARACTERS = 2**22
"""Characters of all sources together."""


class GrammarCache(Generic[CompiledT]):
    """The latest grammars by kind and source: their compiled form, or the compiler's error. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Grammar, CompiledT | RequestError] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def find(self, grammar: Grammar) -> CompiledT | None:
        """Return the compiled form of a grammar, or None if it is not kept.

        Raises:
            RequestError: The grammar cannot be compiled.
        """
        with self._lock:
            kept = self._kept.get(grammar)
            if kept is not None:
                self._kept.move_to_end(grammar)
        if isinstance(kept, RequestError):
            raise RequestError(kept.message, code=kept.code, param=kept.param)
        return kept

    def keep(self, grammar: Grammar, compiled: CompiledT | RequestError) -> None:
        """Keep the compiled form of a grammar, or the compiler's error. The least recently used ones are dropped."""
        with self._lock:
            if grammar not in self._kept:
                self._characters += len(grammar.source)
            self._kept[grammar] = compiled
            while len(self._kept) > MOST_GRAMMARS or self._characters > MOST_CHARACTERS:
                dropped, _ = self._kept.popitem(last=False)
                self._characters -= len(dropped.source)
