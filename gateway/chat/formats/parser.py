"""A parser made of a reader; and the reader that most families share."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from typing_extensions import override

from gateway.chat.deltas import ContentDelta, Delta, FormatParser
from gateway.chat.formats.output import Output
from gateway.chat.formats.source import Malformed, Reading, Source, Truncated
from gateway.chat.formats.values import JSON, Notation, read_value

Reader: TypeAlias = Callable[[Source, Output], Reading[None]]

_SEPARATOR = re.compile(r"[\s,;]*")


@dataclass(frozen=True, slots=True)
class Tags:
    """What a family writes around a part of its text."""

    opening: str
    closing: str


class ReaderParser(FormatParser):
    """A `FormatParser` that runs a reader as far as the text goes."""

    def __init__(self, reader: Reader) -> None:
        self._source, self._out = Source(), Output()
        self._reading = reader(self._source, self._out)

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
    """A `FormatParser` for texts in which there is nothing to find."""

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
    leading: Mapping[str, Reader],
    reasoning_tags: Tags | None,
    thinking: bool,
) -> Reading[None]:
    """Reads reasoning, content and calls.

    Args:
        calls: readers of calls by the markers that open them.
        leading: readers of calls by the texts that open them where nothing but reasoning is before.
        reasoning_tags: the tags around reasoning, which is found where nothing is before it.
        thinking: whether the text begins inside reasoning.
    """
    if reasoning_tags and thinking:
        yield from source.until((reasoning_tags.closing,), out.reasoning)
    while True:
        if leading and not out.answered:
            yield from source.skip_whitespace(out.content)
            first = yield from source.follows(*leading)
            if first:
                yield from attempt(leading[first], source, out, first)
                continue
        opening = reasoning_tags.opening if reasoning_tags and not out.answered else None
        marker = yield from source.until((*calls, opening) if opening else tuple(calls), out.content)
        if marker is None:
            return
        if marker in calls:
            yield from attempt(calls[marker], source, out, marker)
        elif reasoning_tags and not out.answered:
            yield from source.until((reasoning_tags.closing,), out.reasoning)
        else:
            out.content(marker)


def attempt(reader: Reader, source: Source, out: Output, marker: str) -> Reading[None]:
    """Reads what `marker`, just passed, opens.

    Until a call begins, nothing of it is told, and if it breaks, all of it is content. From then on its arguments are
    told as they come. Where they break, they stay unfinished, lest somebody take them for whole, and the text from
    there on is content. Markup that the text's end cuts short is dropped, as whole markup is.
    """
    began = out.calls
    source.hold(len(marker))
    try:
        yield from reader(source, out)
    except Malformed as error:
        if out.calls > began and isinstance(error, Truncated):
            source.commit()
            source.rest()
        source.rewind()
        if out.calls == began:
            out.content(source.take(len(marker)))
    source.commit()


def read_arguments(source: Source, out: Output, name: str, notation: Notation = JSON) -> Reading[None]:
    """Begins a call, and reads its arguments, an object. Raises `Malformed` where none comes next."""
    if (yield from source.peek()) != "{":
        raise Truncated if source.finished() else Malformed
    source.commit()
    out.call(name)
    yield from read_value(source, out.arguments, notation)


def read_calls(one: Reader, source: Source, out: Output, *, closing: str = "") -> Reading[None]:
    """Reads calls with separators between them, and `closing` after the last, if they are a list.

    Raises `Malformed` where the first is none. What follows a call and is none is content.
    """
    began = out.calls
    yield from one(source, out)
    while out.calls > began and not source.finished():
        began = out.calls
        source.hold()
        separator = yield from source.word(_SEPARATOR)
        if closing and (yield from source.follows(closing)):
            break
        if not source.finished():
            yield from attempt(one, source, out, separator)
    source.commit()
