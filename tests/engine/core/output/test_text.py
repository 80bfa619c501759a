"""Stop strings are never shown in part, characters never split, and no text is lost, at any token border."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.output.text import TextAssembler
from tests.engine.work import Work, assert_same, work_of


def assemble(data: bytes, cuts: list[int], stop: tuple[str, ...]) -> tuple[list[str], TextAssembler]:
    """Return the text that an assembler shows of `data` fed in pieces, up to its stop."""
    assembler = TextAssembler(stop)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    shown = []
    for start, end in pairwise(edges):
        shown.append(assembler.push(data[start:end]))
        if assembler.stopped:
            return shown, assembler
    shown.append(assembler.flush())
    return shown, assembler


def first_stop(text: str, stop: tuple[str, ...]) -> str:
    """Return the text before the first complete stop string; the earliest start among those complete at once."""
    for end in range(1, len(text) + 1):
        starts = [end - len(s) for s in stop if text[:end].endswith(s)]
        if starts:
            return text[: min(starts)]
    return text


texts = st.text(alphabet="ab€😀", max_size=30)
stops = st.lists(st.text(alphabet="ab€", min_size=1, max_size=4), max_size=3).map(tuple)


@given(texts, st.lists(st.integers(0, 200), max_size=20), stops)
def test_a_text_is_the_same_at_any_token_borders(text: str, cuts: list[int], stop: tuple[str, ...]) -> None:
    shown, assembler = assemble(text.encode(), cuts, stop)
    whole = "".join(shown)
    if not assembler.stopped:
        assert whole == text
        assert not any(s in text for s in stop)
    else:
        assert text.startswith(whole)
        assert any(text[len(whole) :].startswith(s) for s in stop)


@given(texts, stops)
def test_byte_by_byte_cuts_at_the_first_complete_stop(text: str, stop: tuple[str, ...]) -> None:
    data = text.encode()
    shown, _ = assemble(data, list(range(len(data))), stop)
    assert "".join(shown) == first_stop(text, stop)


@given(texts, st.lists(st.integers(0, 200), max_size=20), stops)
def test_no_shown_text_is_part_of_a_later_stop(text: str, cuts: list[int], stop: tuple[str, ...]) -> None:
    shown, assembler = assemble(text.encode(), cuts, stop)
    if assembler.stopped:
        assert not any(s in "".join(shown) for s in stop)


def test_a_possible_stop_is_held_back_until_it_is_ruled_out() -> None:
    assembler = TextAssembler(["STOP"])
    assert assembler.push(b"x ST") == "x "
    assert assembler.push(b"O") == ""
    assert assembler.push(b"NE") == "STONE"
    assert assembler.push(b" ST") == " "
    assert assembler.flush() == "ST"


def test_the_longest_possible_stop_is_held_back() -> None:
    assembler = TextAssembler(["aab", "ax"])
    assert [assembler.push(piece) for piece in (b"ca", b"a", b"a", b"b")] == ["c", "", "a", ""]
    assert assembler.stopped == "aab"


@given(texts, stops)
def test_as_little_is_held_back_as_possible(text: str, stop: tuple[str, ...]) -> None:
    assembler = TextAssembler(stop)
    shown = assembler.push(text.encode(), may_stop=False)
    begins = (at for at in range(len(text)) if any(s != text[at:] and s.startswith(text[at:]) for s in stop))
    assert shown == text[: next(begins, len(text))]


def test_a_long_text_held_back_adds_no_work_to_a_token() -> None:
    def work(held: int) -> Work:
        assembler = TextAssembler(["b" * 10_000] * 10 + ["a" * 10_000])
        assembler.push(b"a" * held)
        return work_of(lambda: assembler.push(b"a"))

    assert_same(work(10), work(1000))


@pytest.mark.parametrize("stop", [("a1", "z2"), ("z2", "a1")])
@pytest.mark.parametrize(("piece", "first"), [(b"-a1z2", "a1"), (b"-z2a1", "z2")])
def test_of_stops_that_one_token_completes_the_first_in_the_text_counts(
    stop: tuple[str, str], piece: bytes, first: str
) -> None:
    assembler = TextAssembler(stop)
    assert assembler.push(piece) == "-"
    assert assembler.stopped == first


def test_an_unfinished_character_waits_and_is_left_out_at_the_end() -> None:
    assembler = TextAssembler()
    first, *rest = [bytes([byte]) for byte in "€".encode()]
    assert assembler.push(first) == ""
    assert "".join(assembler.push(piece) for piece in rest) == "€"
    assert assembler.push(first) == ""
    assert assembler.flush() == ""


def test_invalid_bytes_become_replacement_characters() -> None:
    assembler = TextAssembler()
    assert assembler.push(b"\xffok") == "\ufffdok"
