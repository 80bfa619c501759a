"""The echo of a prompt: the text as given, cut at token borders, whatever the tokenizer adds around it."""

import pytest

from engine.core.output.echo import Echo, make_echo
from engine.errors import RequestError
from engine.events import Alternative, TokenDetail
from engine.prompt import Infill, Prompt, PromptText
from engine.testing.fake_model import END, FakeModel
from tests.engine.driver import request


class Words(FakeModel):
    """Tokens that read as given, as in vocabularies with words that begin with a space; odd ids are control tokens."""

    READ = (b" Once", b"<s>", b" upon", b"<end>", b" ", b"\xe2\x82", b"\xac")

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return b"" if token in {1, 3} and not special else self.READ[token]


def told(prompt: Prompt, tokens: list[int], **fields: object) -> Echo:
    echo = make_echo(request(echo=True, **{"token_ids": True, **fields}), prompt, tokens, Words())
    assert echo is not None
    return echo


def pieces(echo: Echo) -> list[bytes]:
    return [detail.piece for detail in echo.details]


@pytest.mark.parametrize(
    ("prompt", "tokens", "expected"),
    [
        (" Once upon", [0, 2], [b" Once", b" upon"]),
        ("Once upon", [1, 0, 2], [b"", b"Once", b" upon"]),
        ("<s>Once", [1, 0], [b"<s>", b"Once"]),
        (" Once", [4, 0], [b" ", b"Once"]),
        ("Once<end>", [0, 3], [b"Once", b"<end>"]),
        ("€", [5, 6], [b"\xe2\x82", b"\xac"]),
    ],
)
def test_an_echo_is_the_exact_text_and_its_pieces_join_to_it(
    prompt: str, tokens: list[int], expected: list[bytes]
) -> None:
    echo = told(prompt, tokens)
    assert echo.text == prompt.encode()
    assert pieces(echo) == expected


def test_an_echo_of_a_rewritten_text_is_exact_and_its_tokens_are_as_the_model_reads_them() -> None:
    echo = told("ONCE upon", [0, 2])
    assert echo.text == b"ONCE upon"
    assert pieces(echo) == [b" Once", b" upon"]


@pytest.mark.parametrize(("special", "text"), [(True, b"<s> Once"), (False, b" Once")])
def test_echoed_tokens_read_like_those_of_an_answer(special: bool, text: bytes) -> None:
    assert told((1, 0), [1, 0], show_special=special).text == text


def test_echo_with_infill_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        make_echo(request(echo=True), Infill("a", "b"), [1], FakeModel())
    assert refused.value.param == "echo"


def test_a_request_without_details_has_no_echo() -> None:
    assert make_echo(request(), "a", [97], FakeModel()) is None
    assert make_echo(request(echo=True), "a", [END], FakeModel()).details == []  # type: ignore[union-attr]


def test_the_first_token_has_no_score_and_the_others_have_the_first_one_recorded() -> None:
    top = (Alternative(5, b"x", -1.0),)
    echo = Echo([7, 8, 9], b"abc", [b"a", b"b", b"c"], scored=True)
    assert echo.unscored == 2
    echo.record(0, ((-1.0, top),))
    echo.record(0, ((-7.0, ()), (-2.0, ())))
    echo.record(1, ((-7.0, ()),))
    assert echo.unscored == 0
    assert echo.details == [TokenDetail(7, b"a"), TokenDetail(8, b"b", -1.0, top), TokenDetail(9, b"c", -2.0)]


def test_scores_must_be_contiguous() -> None:
    echo = Echo([7, 8, 9], b"", [], scored=True)
    with pytest.raises(ValueError, match="row 1"):
        echo.record(1, ((-1.0, ()),))


def test_a_prompt_of_one_token_has_no_score() -> None:
    echo = Echo([7], b"a", [b"a"], scored=True)
    assert echo.unscored == 0
    assert echo.details == [TokenDetail(7, b"a")]


def test_a_prompt_with_plain_parts_is_repeated_as_it_was_written() -> None:
    model = FakeModel()
    prompt = PromptText("<end>a<end>", ((5, 11),))
    tokens = model.tokenize_parts(prompt)
    assert tokens == [END, *b"a<end>"]
    echo = make_echo(request(echo=True, token_ids=True), prompt, tokens, model)
    assert echo is not None
    assert (echo.text, [detail.piece for detail in echo.details][:2]) == (b"<end>a<end>", [b"<end>", b"a"])
