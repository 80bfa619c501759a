"""Tokens by delta: each delta carries the tokens with their first byte in it, however the text arrives."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import TokenDetail
from gateway.apis.openai.responses.tokens import SLICE, TokenReader, TracedDelta, in_slices
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, ReasoningDelta


class TaggedParser:
    """A parser where `<r>` begins reasoning, `<c>` a call to the end of the text, `<t>` content; a tag may be split."""

    cut_calls = ()

    def __init__(self) -> None:
        self._held = ""
        self._mode = "t"

    def feed(self, text: str) -> list[Delta]:
        self._held += text
        deltas: list[Delta] = []
        while self._held and self._held not in {"<", "<t", "<r", "<c"}:
            if self._held[:3] in {"<t>", "<r>", "<c>"}:
                self._mode, self._held = self._held[1], self._held[3:]
                deltas += [CallBegan(0, "f")] if self._mode == "c" else []
            else:
                deltas += self._told(self._held[0])
                self._held = self._held[1:]
        return deltas

    def finish(self) -> list[Delta]:
        held, self._held = self._held, ""
        return self._told(held)

    def _told(self, text: str) -> list[Delta]:
        told: dict[str, Delta] = {"t": ContentDelta(text), "r": ReasoningDelta(text), "c": CallArguments(0, text)}
        return [told[self._mode]] if text else []


def tokens_of(*pieces: str | bytes) -> list[TokenDetail]:
    encoded = [piece if isinstance(piece, bytes) else piece.encode() for piece in pieces]
    return [TokenDetail(at, piece) for at, piece in enumerate(encoded)]


def text_of(tokens: Sequence[TokenDetail]) -> str:
    return b"".join(token.piece for token in tokens).decode()


def read(*pieces: str | bytes) -> list[TracedDelta]:
    tokens = tokens_of(*pieces)
    reader = TokenReader(TaggedParser())
    return [*reader.feed(text_of(tokens), tokens), *reader.finish()]


def told(found: Sequence[TracedDelta]) -> list[tuple[Delta, list[int]]]:
    return [(traced.delta, [token.id for token in traced.tokens]) for traced in found]


def test_markup_and_calls_have_no_tokens() -> None:
    found = read("<r", ">", "I", " t", "<t>", "\n", "t", "<c>", "{", "}")
    assert told(found) == [
        (ReasoningDelta("I t"), [2, 3]),
        (ContentDelta("\nt"), [5, 6]),
        (CallBegan(0, "f"), []),
        (CallArguments(0, "{}"), []),
    ]


def test_a_token_in_two_deltas_is_reported_once() -> None:
    assert told(read("<r>a", "b<t>c", "d")) == [(ReasoningDelta("ab"), [0, 1]), (ContentDelta("cd"), [2])]


def test_held_back_text_keeps_its_tokens() -> None:
    assert told(read("a", "<")) == [(ContentDelta("a"), [0]), (ContentDelta("<"), [1])]


def test_tokens_of_one_character_are_in_one_delta() -> None:
    whole = "🐉".encode()
    assert told(read("a", whole[:1], whole[1:], "b")) == [(ContentDelta("a🐉b"), [0, 1, 2, 3])]


def test_text_after_a_stop_string_is_missing_from_the_last_token() -> None:
    reader = TokenReader(TaggedParser())
    assert told(reader.feed("ab", tokens_of("a", "bcd"))) == [(ContentDelta("ab"), [0, 1])]


def test_text_without_tokens_is_reported() -> None:
    reader = TokenReader(TaggedParser())
    assert told(reader.feed("a<r>b", ())) == [(ContentDelta("a"), []), (ReasoningDelta("b"), [])]


@pytest.mark.parametrize("text", ["", "<"])
def test_undecided_text_gives_no_delta(text: str) -> None:
    assert TokenReader(TaggedParser()).feed(text, tokens_of(text)) == []


PIECES = st.lists(st.sampled_from(["<r>", "<t>", "<", "r>", "t>", "a", "ab", " ", "é", "x<t>y", "r", "t"]), max_size=12)


@given(PIECES, st.lists(st.integers(0, 12)))
def test_streamed_and_whole_texts_report_the_same_tokens_and_kinds(pieces: list[str], cuts: list[int]) -> None:
    tokens = tokens_of(*pieces)
    borders = sorted({0, len(tokens), *(cut for cut in cuts if cut < len(tokens))})
    reader = TokenReader(TaggedParser())
    streamed: list[TracedDelta] = []
    for begin, end in pairwise(borders):
        streamed += reader.feed(text_of(tokens[begin:end]), tokens[begin:end])
    streamed += reader.finish()
    assert by_kind(streamed) == by_kind(read(*pieces))


def by_kind(found: Sequence[TracedDelta]) -> list[tuple[type[Delta], str, int]]:
    """Return every character and token with its kind."""
    characters = [(type(traced.delta), c) for traced in found for c in getattr(traced.delta, "text", "")]
    tokens = [(type(traced.delta), token.id) for traced in found for token in traced.tokens]
    return [*characters, *tokens]  # type: ignore[list-item]


@given(
    st.lists(
        st.sampled_from(["<", "t", "r", "c", ">", "a", "b", "\n", "ж🐉".encode()[:3], "ж🐉".encode()[3:]]), max_size=300
    )
)
def test_slices_are_read_as_the_whole(pieces: list[str | bytes]) -> None:
    tokens = tokens_of(*pieces)
    text = b"".join(token.piece for token in tokens).decode(errors="replace")
    whole, sliced = TokenReader(TaggedParser()), TokenReader(TaggedParser())
    found = [traced for part in in_slices(text, tokens) for traced in sliced.feed(*part)]
    assert by_kind([*found, *sliced.finish()]) == by_kind([*whole.feed(text, tokens), *whole.finish()])


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (SLICE, [SLICE]), (2 * SLICE + 1, [SLICE, SLICE, 1])])
def test_no_slice_is_long(count: int, sizes: list[int]) -> None:
    tokens = tokens_of(*["a"] * count)
    assert [len(part) for _, part in in_slices("a" * count, tokens)] == sizes
