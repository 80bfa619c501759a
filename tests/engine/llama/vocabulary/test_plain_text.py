"""Names of control tokens in the plain parts of a text become no control tokens, and nothing else changes."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import embedded_model
from engine.llama.vocabulary.tokenizer import Tokenizer
from engine.prompt import PromptText, all_plain
from tests.engine.llama.vocabulary.vocabularies import CONTROL, MARKS, TURNS, UNKNOWN, opened, renamed, write_vocabulary
from tests.models import model_path
from tests.repeat import TIMES

KINDS = {"spm": ("spm", "test"), "strips": ("spm", "phi-3"), "bpe": ("bpe", "test"), "bpe-strips": ("bpe", "phi-3")}
"""Vocabularies by name; the strips of two of them are the spaces behind a control token."""
NAMES = [*CONTROL, UNKNOWN, MARKS[0]]
WORDS = st.sampled_from(["a", "the time", " ", "\n", " \n\t ", "<", "|>", "<|im_", "é", "\u4e2d", "0", "user", "\n\n"])


def texts(names: Sequence[str]) -> st.SearchStrategy[str]:
    """Return texts of words and names."""
    return st.lists(WORDS | st.sampled_from(names)).map("".join)


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Tokenizer, Tokenizer]]]:
    """For each kind, a vocabulary and one in which the names of the turns are unknown."""
    folder = tmp_path_factory.mktemp("vocabularies")
    with ExitStack() as stack:

        def write(kind: str, *, rename: bool) -> Tokenizer:
            path = folder / f"{kind}-{rename}.gguf"
            return stack.enter_context(opened(write_vocabulary(path, *KINDS[kind], rename=rename)))

        yield {kind: (write(kind, rename=False), write(kind, rename=True)) for kind in KINDS}


@pytest.fixture(scope="module", params=["embedded", "tests", *KINDS])
def vocabulary(
    request: pytest.FixtureRequest, vocabularies: dict[str, tuple[Tokenizer, Tokenizer]]
) -> Iterator[Tokenizer]:
    if request.param in KINDS:
        yield vocabularies[request.param][0]
    else:
        with opened(Path(embedded_model() if request.param == "embedded" else model_path())) as tokenizer:
            yield tokenizer


def written(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    return b"".join(tokenizer.piece(token, special=True) for token in tokens).decode(errors="replace")


def between(marks: Sequence[str], gaps: Sequence[str]) -> PromptText:
    """Return a text of gaps, which are plain unless they are empty, and of the marks between them."""
    text, plain = "", []
    for mark, gap in zip(["", *marks], gaps, strict=True):
        text += mark + gap
        plain.append((len(text) - len(gap), len(text)))
    return PromptText(text, tuple((start, end) for start, end in plain if start < end))


def drawn(data: st.DataObject, names: Sequence[str], words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return marks of these names, and the texts before, between and after them."""
    marks = data.draw(st.lists(st.sampled_from(names)))
    return marks, data.draw(st.lists(texts(words), min_size=len(marks) + 1, max_size=len(marks) + 1))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(data=st.data())
def test_plain_names_are_read_as_if_the_model_did_not_know_them(
    vocabularies: dict[str, tuple[Tokenizer, Tokenizer]], kind: str, data: st.DataObject
) -> None:
    tokenizer, other = vocabularies[kind]
    marks, gaps = drawn(data, TURNS, TURNS)
    expected = other.tokenize(between([renamed(mark) for mark in marks], gaps).text, special=True, begin=True)
    assert tokenizer.tokenize_parts(between(marks, gaps), begin=True) == expected


@settings(max_examples=15 * TIMES)
@given(data=st.data())
def test_parts_without_names_have_the_tokens_of_the_whole_text(vocabulary: Tokenizer, data: st.DataObject) -> None:
    known = [name for name in vocabulary.control_names if name in vocabulary.special_tokens and name != MARKS[0]]
    prompt = between(*drawn(data, known, ["x"]))
    for begin in (False, True):
        whole = vocabulary.tokenize(prompt.text, special=True, begin=begin)
        assert vocabulary.tokenize_parts(prompt, begin=begin) == whole
        assert vocabulary.tokenize_parts(PromptText(prompt.text, ()), begin=begin) == whole


@settings(max_examples=15 * TIMES)
@given(data=st.data())
def test_plain_text_has_no_control_tokens_and_the_same_bytes(vocabulary: Tokenizer, data: st.DataObject) -> None:
    text = data.draw(texts(NAMES))
    control = {vocabulary.special_tokens.get(name) for name in vocabulary.control_names} - {None}
    for tokens in (
        vocabulary.tokenize_parts(all_plain(text), begin=False),
        vocabulary.tokenize(text, special=False, begin=False),
    ):
        assert not control & set(tokens)
        assert without_spaces(written(vocabulary, tokens)) == without_spaces(text)


def without_spaces(text: str) -> str:
    return "".join(text.split())


def test_pieces_that_form_a_name_together_are_no_control_token(tmp_path: Path) -> None:
    with opened(write_vocabulary(tmp_path / "merging.gguf", "spm", pairs=["s>"])) as tokenizer:
        tokens = tokenizer.tokenize("<s> a", special=False, begin=False)
        assert 1 not in tokens
        assert written(tokenizer, tokens) == " <s> a"


def test_names_that_look_like_control_tokens_are_listed(vocabularies: dict[str, tuple[Tokenizer, Tokenizer]]) -> None:
    assert sorted(vocabularies["bpe"][0].control_names) == sorted(NAMES)
