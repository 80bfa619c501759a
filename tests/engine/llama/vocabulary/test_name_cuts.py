"""Texts with many names of special tokens, for which llama.cpp's time grows with their square, are cut for it."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import embedded_model
from engine.llama.vocabulary import name_cuts
from engine.llama.vocabulary.name_cuts import MOST_NAMES
from engine.llama.vocabulary.tokenizer import Tokenizer
from tests.engine.llama.vocabulary.vocabularies import CONTROL, MARKS, UNKNOWN, opened, write_vocabulary
from tests.models import model_path
from tests.repeat import TIMES

WORDS = ["a", "the time", " ", "\n", " \n\t ", "<", ">", "<|im_", "é", "\u4e2d", "<x>", "[", "]", "\u2581"]
OTHERS = ["[INST]", "\n\n\n", "\u2581\u2581", "xyz"]
"""Further names, as the vocabularies of Mistral and Gemma have them."""
TEXTS = st.lists(st.sampled_from([*WORDS, *CONTROL, UNKNOWN, *MARKS, *OTHERS])).map("".join)
OVERLAPPING = "im_end|>_and_more"
"""A name that llama.cpp looks for before the shorter one of a control token, whose end it has."""


@pytest.fixture(scope="module", params=["embedded", "tests", "spm", "phi-3", "bpe", "others", "overlapping"])
def vocabulary(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenizer]:
    path = tmp_path_factory.mktemp("vocabularies") / "vocabulary.gguf"
    match request.param:
        case "embedded":
            path = Path(embedded_model())
        case "tests":
            path = Path(model_path())
        case "overlapping":
            write_vocabulary(path, "spm", marks=[OVERLAPPING])
        case "others":
            write_vocabulary(path, "spm", marks=OTHERS)
        case "phi-3":
            write_vocabulary(path, "spm", "phi-3")
        case kind:
            write_vocabulary(path, kind)
    with opened(path) as opened_vocabulary:
        yield opened_vocabulary


@settings(max_examples=40 * TIMES)
@given(text=TEXTS, special=st.booleans(), begin=st.booleans())
def test_a_text_that_is_cut_has_the_same_tokens(vocabulary: Tokenizer, text: str, special: bool, begin: bool) -> None:
    whole = vocabulary.tokenize(text, special=special, begin=begin)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_cuts, "MOST_NAMES", 1)
        assert vocabulary.tokenize(text, special=special, begin=begin) == whole


def test_no_text_is_cut_inside_a_name_that_reaches_over_the_end_of_another(
    vocabulary: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"<|im_end|><|{OVERLAPPING} a"
    whole = vocabulary.tokenize(text, special=True, begin=True)
    monkeypatch.setattr(name_cuts, "MOST_NAMES", 1)
    assert vocabulary.tokenize(text, special=True, begin=True) == whole


@pytest.mark.parametrize(
    ("kind", "name", "special"),
    [("bpe", CONTROL[3], True), ("spm", MARKS[1], False), ("spm", MARKS[2], True), ("spm", OTHERS[0], False)],
)
def test_llama_cpp_gets_few_names_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, special: bool
) -> None:
    counts: list[int] = []
    real = llama_cpp.llama_tokenize

    def counting(vocab: int, text: bytes, *others: ctypes.Array[ctypes.c_int] | int) -> int:
        counts.append(text.count(name.encode()))
        return int(real(vocab, text, *others))

    with opened(write_vocabulary(tmp_path / "vocabulary.gguf", kind, marks=OTHERS)) as vocabulary:
        monkeypatch.setattr(llama_cpp, "llama_tokenize", counting)
        tokens = vocabulary.tokenize(f"a{name}" * (3 * MOST_NAMES), special=special, begin=False)
    assert tokens.count(vocabulary.special_tokens[name]) == 3 * MOST_NAMES
    assert max(counts) == MOST_NAMES
