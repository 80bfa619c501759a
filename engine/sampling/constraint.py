"""The grammar constraint of one sequence."""

import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future

from engine.sampling.candidates import DrawError, Mask
from engine.sampling.grammar import CompiledGrammar, denied_tokens
from engine.sampling.grammar_bounds import GrammarError

MOST_SECONDS = 0.1
"""Processor time for one token. Ambiguous grammars cost more with every token, and others wait for the mask."""


class GrammarStoppedError(DrawError):
    """The grammar cannot continue: it is too large or too ambiguous."""

    code = "invalid_grammar"
    param = "grammar"


class Constraint:
    """Computes the mask of the next token in another thread, while the model computes its logits."""

    def __init__(self, compiled: CompiledGrammar, workers: Executor) -> None:
        """Start at the beginning of a text. `workers` run one task of this constraint at a time."""
        self._compiled = compiled
        self._workers = workers
        self._matcher = compiled.matcher.deep_copy()
        self._denied: Mask | Future[Mask] = compiled.denied
        self._end = b""

    def denied(self) -> Mask:
        """Return the mask of the tokens that cannot come next. Waits for it.

        Raises:
            GrammarStoppedError: the grammar cannot continue.
        """
        if isinstance(self._denied, Future):
            try:
                self._denied = self._denied.result()
            except GrammarError as error:
                self._compiled.failed = True
                raise GrammarStoppedError(f"the grammar cannot go on: {error}") from error
        return self._denied

    def allows(self, tokens: Sequence[int]) -> bool:
        """Return whether these tokens may come next, one after the other. Waits for the mask.

        Raises:
            GrammarStoppedError: the grammar cannot continue.
        """
        if self.denied()[tokens[0]]:
            return False
        return self._matcher.validate_tokens(list(tokens)) == len(tokens)

    def accept(self, token: int) -> None:
        """Start computing the mask after a drawn token. Does not wait."""
        self._denied = self._workers.submit(self._advance, token)

    def _advance(self, token: int) -> Mask:
        began = time.thread_time()
        self._matcher.consume_token(token)
        denied = denied_tokens(self._matcher, len(self._compiled.denied))
        if time.thread_time() - began > MOST_SECONDS:
            raise GrammarError("it takes too long to say what may come next; make it less ambiguous")
        if self._compiled.numbers is None:
            return denied
        self._end = self._compiled.numbers.end_of(self._end, token)
        return self._compiled.numbers.applied(self._end, denied)
