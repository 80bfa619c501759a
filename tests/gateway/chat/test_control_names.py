"""Names of control tokens are found, and the parts that could form one with the text around them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat.control_names import ControlNames

NAMES = ["<s>", "</s>", "<|im_end|>", "<|im_end|>\n", "<|im_endless|>", "[INST]", "sep", " \n", ""]
WORDS = st.sampled_from([*"<|>/s[] \n", "im_", "end", "less", "INST", "e", "p", "é", *NAMES])
TEXTS = st.lists(WORDS).map("".join)


@given(TEXTS)
def test_the_longest_name_at_each_place_is_found(text: str) -> None:
    names = [name for name in NAMES if name.strip()]
    at_each = ((start, [name for name in names if text.startswith(name, start)]) for start in range(len(text)))
    longest = [(start, start + max(map(len, found))) for start, found in at_each if found]
    assert list(ControlNames(NAMES).find(text)) == longest


@given(
    TEXTS, TEXTS, st.sampled_from(["", "<", "[", "</", "|", "<|im_"]), st.sampled_from(["", ">", "]", "|>", "end|>"])
)
def test_without_its_marks_a_text_forms_no_name_with_others(text: str, other: str, before: str, after: str) -> None:
    names = ControlNames([name for name in NAMES if not name.isalpha()])

    def marked(text: str) -> str:
        marks = set(names.find_marks(text))
        return "".join("\u3400" if at in marks else one for at, one in enumerate(text))

    for joined in (marked(text) + marked(other), f"{before}{marked(text)}"[len(before) :], f"{marked(text)}{after}"):
        assert not [span for span in names.find(joined) if span[0] < len(marked(text))]


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("a<s>b", [1, 3]),
        ("<|im_end|>", [0, 1, 4, 8, 9]),
        ("a < b > c", []),
        ("a <|im_", [2, 3, 6]),
        ("|> a", [0, 1]),
        ("s", [0]),
        ("|im_end|", [0, 3, 7]),
        ("a sep", [2, 3, 4]),
        ("an se", []),
        ("", []),
    ],
)
def test_marks(text: str, marks: list[int]) -> None:
    assert sorted(set(ControlNames(NAMES).find_marks(text))) == marks


def test_no_names_are_never_found() -> None:
    assert not list(ControlNames([]).find("<s>"))
    assert not list(ControlNames([" ", ""]).find_marks("<s> "))


def test_many_names_and_long_ones_are_found() -> None:
    names = ControlNames([*(f"<unused{number}>" for number in range(3000)), "a" * 200, "a" * 199])
    assert list(names.find("x<unused2999>")) == [(1, 13)]
    assert next(names.find("a" * 300)) == (0, 200)
