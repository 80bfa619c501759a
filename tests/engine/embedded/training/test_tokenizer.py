"""The tokenizer: every text round-trips, digits are single tokens, and llama.cpp agrees."""

from itertools import islice

import pytest
from gguf import GGUFReader
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import embedded
from engine.embedded.training import tokenizer
from engine.embedded.training.corpus import examples
from engine.embedded.training.corpus.draw import Draw
from engine.embedded.training.corpus.example import Completion
from engine.embedded.training.llama_cpp_reader import Reader
from engine.embedded.training.template import render
from engine.embedded.training.tokenizer import CONTROL, MARKERS, Tokenizer, spelled, unspelled


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    """Return the tokenizer of the embedded model."""
    field = GGUFReader(embedded.path()).fields["tokenizer.ggml.merges"]
    return Tokenizer.parse(field.contents())


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(embedded.path())


@given(text=st.text())
def test_every_text_round_trips(words: Tokenizer, text: str) -> None:
    assert words.decode(words.encode(text)) == text.encode()


@given(piece=st.binary())
def test_every_piece_can_be_spelled(piece: bytes) -> None:
    assert unspelled(spelled(piece)) == piece
    assert " " not in spelled(piece)


PIECES = st.one_of(
    st.text(max_size=8),
    st.text(alphabet=" \t\n\r\x0b\x1c\x85\xa0\u2003\u3000", max_size=5),
    st.sampled_from(
        [*CONTROL, *MARKERS, "'s", "'re", ' "', '{"name": "', "12", " 7", "the", " the", "é", "²", "_", "…"]
    ),
)


@settings(max_examples=300)
@given(parts=st.lists(PIECES, max_size=8))
def test_llama_cpp_cuts_the_same_tokens(words: Tokenizer, reader: Reader, parts: list[str]) -> None:
    text = "".join(parts)
    assert reader.tokens(text) == words.encode(text)


def test_llama_cpp_cuts_the_corpus_the_same(words: Tokenizer, reader: Reader) -> None:
    for one in islice(examples(Draw(9, held_out=True)), 500):
        text = one.prompt + one.answer if isinstance(one, Completion) else render(one.messages, one.tools, ask=True)
        assert reader.tokens(text) == words.encode(text)


def test_every_digit_is_a_token(words: Tokenizer) -> None:
    assert words.encode("17+25=42") == [ord(character) for character in "17+25=42"]


def test_merges_survive_being_written(words: Tokenizer) -> None:
    assert Tokenizer.parse(words.lines()).merges == words.merges


def test_training_merges_the_most_frequent_pair_first(capsys: pytest.CaptureFixture[str]) -> None:
    learned = tokenizer.train(["abab abab ab", "1212 1212"], 2)
    assert learned.merges == ((b"a", b"b"), (b"ab", b"ab"))
    assert learned.decode(learned.encode("abab")) == b"abab"
    assert len(learned.encode("abab")) == 1
    assert "tokenizer" in capsys.readouterr().err
