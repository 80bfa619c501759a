"""Every token is reported once, in order, with the text that has its first byte, at any cut of any bytes."""

import codecs
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from engine.core.output.transcript import Transcript
from engine.core.token import Token
from engine.events import TokenDetail

Take = tuple[str, tuple[TokenDetail, ...]]

ODD = [b"", b"a", b"b", b"ab", b"\xe2", b"\x82", b"\xac", b"\xe2\x82", b"\xaca", b"\xff", b"\xf0\x9f", b"\x98\x80b"]
pieces = st.lists(st.sampled_from(ODD) | st.binary(max_size=3), max_size=25)
stops = st.lists(st.text(alphabet="ab€\ufffd", min_size=1, max_size=4), max_size=3).map(tuple)


@dataclass
class Said:
    """The output of a transcript, event by event, for the tokens it was fed."""

    takes: list[Take]
    fed: list[bytes]
    stopped: str | None

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.takes)

    @property
    def told(self) -> list[int]:
        """Return the ids of the reported tokens, which number the fed pieces."""
        return [detail.id for _, details in self.takes for detail in details]


def say(cut: list[bytes], stop: tuple[str, ...], *, stream: bool, free: int = 0) -> Said:
    """Return the output for these pieces; `free` is the number of tokens that may not complete a stop string."""
    transcript = Transcript(stop, with_tokens=True)
    takes: list[Take] = []
    fed = []
    for at, piece in enumerate(cut):
        transcript.add(Token(at, piece, ends=False), may_stop=at >= free)
        fed.append(piece)
        if transcript.stopped is not None:
            break
        if stream:
            takes.append(transcript.take())
    takes.append(transcript.close())
    return Said(takes, fed, transcript.stopped)


def begins(cut: list[bytes]) -> list[int]:
    """Return where each piece's first byte is in the whole text, by decoding all bytes before it."""
    data = b"".join(cut)
    places = []
    at = 0
    for piece in cut:
        before = data[: at + 1].decode(errors="replace") if piece else _finished(data[:at]) + "?"
        places.append(len(before) - 1)
        at += len(piece)
    return places


def _finished(data: bytes) -> str:
    """Return the complete characters."""
    return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data)


@given(pieces, stops, st.integers(0, 6))
def test_streamed_pieces_join_to_the_whole_text(cut: list[bytes], stop: tuple[str, ...], free: int) -> None:
    streamed, whole = (say(cut, stop, stream=stream, free=free) for stream in (True, False))
    assert (streamed.text, streamed.told, streamed.stopped) == (whole.text, whole.told, whole.stopped)


@given(pieces, stops, st.integers(0, 6))
def test_the_reported_pieces_spell_the_text(cut: list[bytes], stop: tuple[str, ...], free: int) -> None:
    said = say(cut, stop, stream=True, free=free)
    spelled = b"".join(said.fed[token] for token in said.told)
    assert said.told == list(range(len(said.told)))
    if said.stopped is None:
        assert len(said.told) == len(cut)
        assert _finished(spelled) == said.text
    else:
        assert spelled.decode(errors="replace").startswith(said.text)
        assert _finished(b"".join(said.fed)).startswith(said.text + said.stopped)


@given(pieces, stops)
def test_no_token_after_the_start_of_a_stop_string_is_reported(cut: list[bytes], stop: tuple[str, ...]) -> None:
    said = say(cut, stop, stream=True)
    if said.stopped is not None:
        assert said.told == [at for at, begin in enumerate(begins(said.fed)) if begin < len(said.text)]


@given(pieces, stops)
def test_a_token_is_reported_in_the_event_with_its_first_byte(cut: list[bytes], stop: tuple[str, ...]) -> None:
    said = say(cut, stop, stream=True)
    places = begins(said.fed)
    shown = 0
    for text, details in said.takes[:-1]:
        assert all(shown <= places[detail.id] < shown + len(text) for detail in details)
        shown += len(text)
    assert all(shown <= places[detail.id] for detail in said.takes[-1][1])


@given(pieces, stops, st.integers(0, 30))
def test_a_stop_string_that_is_complete_too_early_is_text(cut: list[bytes], stop: tuple[str, ...], free: int) -> None:
    said = say(cut, stop, stream=True, free=free)
    if said.stopped is None:
        assert said.text == _finished(b"".join(cut))
    else:
        assert len(said.text + said.stopped) > len(_finished(b"".join(cut[:free])))


def test_a_token_with_a_stop_string_in_its_middle_is_reported() -> None:
    said = say([b"x", b"yST", b"OP", b"z"], ("STOP",), stream=True)
    assert said.takes == [("x", (TokenDetail(0, b"x"),)), ("y", (TokenDetail(1, b"yST"),)), ("", ())]


def test_held_back_text_holds_back_its_tokens() -> None:
    said = say([b"S", b"T", b"!"], ("STOP",), stream=True)
    assert [(text, len(details)) for text, details in said.takes] == [("", 0), ("", 0), ("ST!", 3), ("", 0)]


def test_the_tokens_of_one_character_are_reported_with_it() -> None:
    said = say([b"\xe2", b"", b"\x82", b"\xac", b"!"], (), stream=True)
    assert [(text, len(details)) for text, details in said.takes][3:] == [("€", 4), ("!", 1), ("", 0)]


def test_an_incomplete_character_is_reported_at_the_end() -> None:
    said = say([b"a", b"\xe2", b""], (), stream=True)
    assert (said.text, said.told, len(said.takes[-1][1])) == ("a", [0, 1, 2], 2)


def test_a_prompt_comes_whole_with_the_first_text_and_no_stop_string_begins_in_it() -> None:
    transcript = Transcript(("OP", "pS"), with_tokens=True)
    transcript.open(b"STOP prompS", [TokenDetail(7, b"STOP"), TokenDetail(8, b" promp"), TokenDetail(9, b"S")])
    transcript.add(Token(1, b"TO", ends=False), may_stop=True)
    text, details = transcript.take()
    assert (text, [detail.id for detail in details]) == ("STOP prompST", [7, 8, 9, 1])
    transcript.add(Token(2, b"P", ends=False), may_stop=True)
    assert transcript.stopped == "OP"
    assert transcript.close() == ("", ())


def test_a_prompt_without_text_is_reported_even_before_an_immediate_stop_string() -> None:
    transcript = Transcript(("a",), with_tokens=True)
    transcript.open(b"", [TokenDetail(7, b"")])
    transcript.add(Token(1, b"a", ends=False), may_stop=True)
    assert transcript.close() == ("", (TokenDetail(7, b""),))


def test_tokens_are_reported_only_on_request() -> None:
    transcript = Transcript((), with_tokens=False)
    transcript.add(Token(1, b"a", ends=False), may_stop=True)
    assert transcript.take() == ("a", ())
    assert transcript.close() == ("", ())


def test_the_tokens_of_a_prompt_wait_for_its_first_character() -> None:
    transcript = Transcript((), with_tokens=True)
    euro = "€".encode()
    transcript.open(euro[:1], [TokenDetail(0, euro[:1])])
    assert transcript.take() == ("", ())
    transcript.add(Token(1, euro[1:], ends=False), may_stop=True)
    assert transcript.take() == ("€", (TokenDetail(0, euro[:1]), TokenDetail(1, euro[1:])))
