"""Parsers that run a reader, and the reader that most families share."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from typing_extensions import override

from gateway.chat.deltas import ContentDelta, Delta, FormatParser
from gateway.chat.formats.output import InlineOutput, Output
from gateway.chat.formats.source import Emit, Malformed, Reading, Source, Truncated
from gateway.chat.formats.values import JSON, Notation, read_value

Reader: TypeAlias = Callable[[Source, Output], Reading[None]]
"""Reads from a source and writes to an output."""

NOTHING = "{}"
"""Arguments without a member."""
_SEPARATOR = re.compile(r"[\s,;]*")


@dataclass(frozen=True, slots=True)
class Tags:
    """Pair of markers around a part of the text."""

    opening: str
    """Marker before the part."""
    closing: str
    """Marker after the part."""


@dataclass(frozen=True, slots=True)
class ReasoningSyntax:
    """Places of reasoning in a text."""

    tags: Tags | None
    """The tags around reasoning, if there can be any. They count only before content and calls."""
    ended_by_calls: bool
    """True if a call or a mark in reasoning ends it."""
    again: bool
    """True if the tags also count behind calls."""
    opened: bool
    """True if the text begins inside reasoning."""

    def openings(self, out: Output) -> tuple[str, ...]:
        """Return the tag that opens reasoning, if one counts now. Behind content none does: an answer may name it."""
        return (self.tags.opening,) if self.tags and not (out.speaks if self.again else out.answered) else ()


class ReaderParser(FormatParser):
    """Parser that runs a reader as far as the available text permits. With `inline`, reasoning is content."""

    def __init__(self, reader: Reader, *, inline: bool) -> None:
        self._source, self._out = Source(), InlineOutput() if inline else Output()
        self._reading = reader(self._source, self._out)

    @property
    @override
    def cut_calls(self) -> Collection[int]:
        return self._out.cut_calls

    @override
    def feed(self, text: str) -> list[Delta]:
        self._source.push(text)
        next(self._reading, None)
        return self._out.take()

    @override
    def finish(self) -> list[Delta]:
        self._source.end()
        next(self._reading, None)
        self._out.finish()
        return self._out.take()


class TextParser(FormatParser):
    """Parser for text without reasoning and calls: all of it is content."""

    @property
    @override
    def cut_calls(self) -> Collection[int]:
        return ()

    @override
    def feed(self, text: str) -> list[Delta]:
        return [ContentDelta(text)] if text else []

    @override
    def finish(self) -> list[Delta]:
        return []


def read_answer(
    source: Source,
    out: Output,
    *,
    calls: Mapping[str, Reader],
    marks: tuple[str, ...],
    leading: Mapping[str, Reader],
    reasoning: ReasoningSyntax,
) -> Reading[None]:
    """Read reasoning, content and calls.

    Args:
        source: the text.
        out: the collected output.
        calls: readers of calls by their opening markers.
        marks: marks around content, which are dropped.
        leading: readers by opening texts that count only at the start, or after reasoning.
        reasoning: where the text has reasoning.
    """
    tags = reasoning.tags
    inside = (calls, marks) if reasoning.ended_by_calls else ({}, ())
    reasoner = partial(_read_reasoning, source, out, *inside)
    markers = (*calls, *marks)
    late: tuple[str, ...] = ()  # the end of reasoning that a call has ended before
    if tags and reasoning.opened and not (yield from reasoner(tags, opened=True)):
        late = (tags.closing,)
    while True:
        if leading and not out.answered:
            yield from source.skip_whitespace(out.content)
            first = yield from source.follows(*leading)
            if first:
                yield from attempt(leading[first], source, out, first)
                continue
        marker = yield from source.until((*markers, *late, *reasoning.openings(out)), out.content)
        if marker is None:
            return
        if marker in marks:
            continue
        if marker in late:
            out.reasoning_ends(marker)
            late = ()
        elif marker in calls:
            yield from attempt(calls[marker], source, out, marker)
        elif tags and reasoning.openings(out):
            late = () if (yield from reasoner(tags)) else (tags.closing,)
        else:
            out.content(marker)


def _read_reasoning(
    source: Source,
    out: Output,
    calls: Mapping[str, Reader],
    marks: tuple[str, ...],
    tags: Tags,
    *,
    opened: bool = False,
) -> Reading[bool]:
    """Read reasoning after its opening. One of `calls` or of `marks` ends it, too. Return True if its end was read.

    If the prompt has `opened` it, models may open it again.
    """
    began = out.calls
    out.reasoning_begins(tags.opening)
    if opened:
        yield from source.skip_whitespace(out.reasoning)
        out.reasoning_repeats((yield from source.follows(tags.opening)) or "")
    while out.calls == began:
        marker = yield from source.until((tags.closing, *marks, *calls), out.reasoning)
        if marker == tags.closing:
            out.reasoning_ends(marker)
        if marker is None or marker not in calls:
            return marker == tags.closing
        yield from attempt(calls[marker], source, out, marker, otherwise=out.reasoning)
    return False


def attempt(
    reader: Reader, source: Source, out: Output, marker: str, *, otherwise: Emit | None = None
) -> Reading[None]:
    """Read the part that `marker`, just read, opens.

    Before a call begins, no delta of it is emitted, and if the text is malformed, `marker` goes to `otherwise`, content
    by default, and the rest is read again. After that the arguments are streamed. If they are malformed, they stay
    incomplete, so that clients do not accept them as complete, and the rest of the text is content. Markup that the end
    of the text truncates is dropped, as complete markup is.
    """
    began = out.calls
    source.hold(len(marker))
    try:
        yield from reader(source, out)
    except Malformed as error:
        if out.calls > began:
            out.cut()
        if out.calls > began and isinstance(error, Truncated):
            source.commit()
            source.rest()
        source.rewind()
        if out.calls == began:
            (otherwise or out.content)(source.take(len(marker)))
    source.commit()


def read_arguments(
    source: Source, out: Output, name: str, notation: Notation = JSON, ends: tuple[str, ...] = ()
) -> Reading[None]:
    """Begin a call, and read its arguments, an object.

    Models leave out an object without members. One of `ends` in its place stands for it, and is not read.

    Raises:
        Malformed: if the next value is not an object.
    """
    if end := (yield from source.follows(*ends)):
        source.put_back(len(end))
        source.commit()
        out.call(name)
        out.arguments(NOTHING)
        return
    if (yield from source.peek()) != "{":
        raise Truncated if source.finished() else Malformed
    source.commit()
    out.call(name)
    yield from read_value(source, out.arguments, notation)


def read_marked(source: Source, out: Output, *, marker: str, one: Reader) -> Reading[None]:
    """Read a call after its marker.

    Raises:
        Malformed: if the marker does not come next, or no call comes after it.
    """
    yield from source.skip_whitespace()
    yield from source.expect(marker)
    yield from one(source, out)


def read_calls(one: Reader, source: Source, out: Output, *, closing: str = "") -> Reading[None]:
    """Read calls, with whitespace before and separators between them, and the `closing` of their list if they are one.

    Text after the first call that is not a call is content.

    Raises:
        Malformed: if the first one is not a call.
    """
    began = out.calls
    yield from source.skip_whitespace()
    yield from one(source, out)
    while out.calls > began and not source.finished():
        began = out.calls
        source.hold()
        separator = yield from source.word(_SEPARATOR)
        if closing and (yield from source.follows(closing)):
            break
        if source.ends_in(closing):
            source.rest()
        if not source.finished():
            yield from attempt(one, source, out, separator)
    source.commit()
