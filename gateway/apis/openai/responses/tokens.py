"""Mapping of parsed deltas to their tokens. A parser does not report the position of a delta in the text."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

from engine import TokenDetail
from gateway.apis.answers.token_texts import TokenTexts
from gateway.chat.deltas import CallBegan, ContentDelta, Delta, FormatParser, ReasoningDelta

SLICE = 64
"""Tokens that are read at once: about a millisecond of work."""

CHARACTERS = 4 * SLICE
"""Characters that are read at once of a text without tokens."""


@dataclass(frozen=True, slots=True)
class TracedDelta:
    """A delta with its tokens."""

    delta: Delta
    """The delta from the parser."""
    tokens: tuple[TokenDetail, ...] = ()
    """Tokens with a text that begins in the delta. Tokens of markup and of calls do not belong to any delta."""


class TokenReader:
    """Feeds a choice's text to its parser token by token, to find the tokens of each delta."""

    def __init__(self, parser: FormatParser) -> None:
        self._parser = parser
        self._texts = TokenTexts()
        self._pending: list[tuple[str, TokenDetail | None]] = []
        """Text without a delta yet, by token. None replaces a token that began in an earlier delta."""

    @property
    def cut_calls(self) -> Collection[int]:
        """As in `FormatParser`."""
        return self._parser.cut_calls

    def feed(self, text: str, tokens: Sequence[TokenDetail]) -> list[TracedDelta]:
        """Add the next text and its tokens. Return the deltas that are complete now."""
        found: list[TracedDelta] = []
        for part, token in self._texts.split(text, tokens):
            self._pending.append((part, token))
            found += map(self._traced, self._parser.feed(part))
        return list(_joined(found))

    def finish(self) -> list[TracedDelta]:
        """Return the deltas that were held back. Must be called once, after the end of the text."""
        return [self._traced(delta) for delta in self._parser.finish()]

    def _traced(self, delta: Delta) -> TracedDelta:
        if not isinstance(delta, ContentDelta | ReasoningDelta):
            self._pending.clear()
            return TracedDelta(delta)
        return TracedDelta(delta, tuple(self._take(delta.text)))

    def _take(self, text: str) -> list[TokenDetail]:
        """Remove and return the tokens of a delta.

        Its text is the last match in the pending text, because the text before it is markup.
        """
        begin = max("".join(part for part, _ in self._pending).rfind(text), 0)
        end = begin + len(text)
        at = 0
        taken: list[TokenDetail] = []
        rest: list[tuple[str, TokenDetail | None]] = []
        for part, token in self._pending:
            behind = at + len(part)
            if at >= end:
                rest.append((part, token))
            elif behind > begin or at == begin:
                taken += [] if token is None else [token]
                rest += [(part[end - at :], None)] if behind > end else []
            at = behind
        self._pending = rest
        return taken


def _joined(found: list[TracedDelta]) -> Iterator[TracedDelta]:
    """Join adjacent deltas of the same type."""
    for kind, group in groupby(found, lambda traced: type(traced.delta)):
        run = list(group)
        yield from run if kind is CallBegan else [_as_one(run)]


def _as_one(run: Sequence[TracedDelta]) -> TracedDelta:
    texts = [traced.delta for traced in run if not isinstance(traced.delta, CallBegan)]
    whole = replace(texts[0], text="".join(delta.text for delta in texts))
    return TracedDelta(whole, tuple(token for traced in run for token in traced.tokens))


def in_slices(text: str, tokens: Sequence[TokenDetail]) -> Iterator[tuple[str, Sequence[TokenDetail]]]:
    """Return a long text with its tokens in slices for `TokenReader.feed`, so that other work can run between them.

    Without tokens, because the request does not ask for them, the text is sliced by its length.
    """
    if not tokens:
        yield from ((text[at : at + CHARACTERS], ()) for at in range(0, len(text) or 1, CHARACTERS))
        return
    texts = (part for part, _ in TokenTexts().split(text, tokens))
    for first in range(0, len(tokens), SLICE):
        yield "".join(islice(texts, SLICE)), tokens[first : first + SLICE]
