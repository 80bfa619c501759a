"""Which tokens carry which delta: a parser tells what a text means, and not where in it that stood."""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from engine import TokenDetail
from gateway.chat.deltas import CallBegan, Content, Delta, FormatParser, Reasoning


@dataclass(frozen=True, slots=True)
class Carried:
    """A delta, and the tokens whose text begins in it. Tokens of markup and of calls are told with none."""

    delta: Delta
    tokens: tuple[TokenDetail, ...] = ()


class TokenReader:
    """Feeds a choice's text to its parser token by token, so that each delta can be traced to its tokens."""

    def __init__(self, parser: FormatParser) -> None:
        self._parser = parser
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pending: list[tuple[str, TokenDetail | None]] = []
        """The text that is in no delta yet, by token; None in place of one that was told with its beginning."""

    def feed(self, text: str, tokens: Sequence[TokenDetail]) -> list[Carried]:
        """Take the text that follows what was fed before, and its tokens; give the deltas that are certain now."""
        found: list[Carried] = []
        for part, token in self._cut(text, tokens):
            self._pending.append((part, token))
            found += map(self._carried, self._parser.feed(part))
        return list(_joined(found))

    def finish(self) -> list[Carried]:
        """Give what was held back, once, when the text has ended."""
        return [self._carried(delta) for delta in self._parser.finish()]

    def _cut(self, text: str, tokens: Sequence[TokenDetail]) -> Iterator[tuple[str, TokenDetail | None]]:
        """The text by token. What a stop string cut off is missing from the last; what no token tells of is its own."""
        at = 0
        for token in tokens[:-1]:
            end = at + len(self._decoder.decode(token.piece))
            yield text[at:end], token
            at = end
        if tokens:
            self._decoder.decode(tokens[-1].piece)
        yield text[at:], tokens[-1] if tokens else None

    def _carried(self, delta: Delta) -> Carried:
        if not isinstance(delta, Content | Reasoning):
            self._pending.clear()
            return Carried(delta)
        return Carried(delta, tuple(self._take(delta.text)))

    def _take(self, text: str) -> list[TokenDetail]:
        """The tokens of a delta's text, which stands as far back as it can: what is before it is markup."""
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


def _joined(found: list[Carried]) -> Iterator[Carried]:
    """Neighbours of one kind as one."""
    for kind, group in groupby(found, lambda carried: type(carried.delta)):
        run = list(group)
        yield from run if kind is CallBegan else [_as_one(run)]


def _as_one(run: Sequence[Carried]) -> Carried:
    texts = [carried.delta for carried in run if not isinstance(carried.delta, CallBegan)]
    whole = replace(texts[0], text="".join(delta.text for delta in texts))
    return Carried(whole, tuple(token for carried in run for token in carried.tokens))
