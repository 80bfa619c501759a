"""Log-probabilities in the shape of OpenAI's completions."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from engine import Alternative, TokenDetail
from gateway.apis.answers.legacy_logprobs import LegacyLogprobsEncoder, mean_logprob, token_text

DRAGON = "🐉".encode()
DETAILS = [
    TokenDetail(1, b"Once"),
    TokenDetail(2, b" a", -0.5, (Alternative(2, b" a", -0.5), Alternative(3, b" the", -1.5))),
    TokenDetail(4, DRAGON[:2], -2.0, (Alternative(3, b" the", -1.0),)),
    TokenDetail(5, DRAGON[2:], -0.25),
    TokenDetail(6, b"", -0.125),
    TokenDetail(7, "жз".encode(), -1.0),
    TokenDetail(8, b"!", -3.0),
]


def encoded(details: Sequence[TokenDetail], encoder: LegacyLogprobsEncoder | None = None) -> dict[str, Any]:
    whole: dict[str, Any] = orjson.loads(b"".join((encoder or LegacyLogprobsEncoder()).encode(details)))
    return whole


def test_legacy_logprobs_are_parallel_lists_over_the_tokens() -> None:
    assert encoded(DETAILS) == {
        "text_offset": [0, 4, 6, 6, 7, 7, 9],
        "token_logprobs": [None, -0.5, -2.0, -0.25, -0.125, -1.0, -3.0],
        "tokens": ["Once", " a", "bytes:\\xf0\\x9f", "bytes:\\x90\\x89", "", "жз", "!"],
        "top_logprobs": [
            None,
            {" a": -0.5, " the": -1.5},
            {" the": -1.0, "bytes:\\xf0\\x9f": -2.0},
            {"bytes:\\x90\\x89": -0.25},
            {"": -0.125},
            {"жз": -1.0},
            {"!": -3.0},
        ],
    }


@pytest.mark.parametrize("cut", range(len(DETAILS) + 1))
def test_logprobs_of_pieces_join_to_the_whole(cut: int) -> None:
    encoder = LegacyLogprobsEncoder()
    first, second = encoded(DETAILS[:cut], encoder), encoded(DETAILS[cut:], encoder)
    assert encoded(DETAILS) == {
        "text_offset": first["text_offset"] + second["text_offset"],
        "token_logprobs": first["token_logprobs"] + second["token_logprobs"],
        "tokens": first["tokens"] + second["tokens"],
        "top_logprobs": first["top_logprobs"] + second["top_logprobs"],
    }


def test_the_offset_of_incomplete_bytes_follows_the_shown_text() -> None:
    details = [TokenDetail(1, b"\xffa", -1.0), TokenDetail(2, b"b", -1.0)]
    assert encoded(details)["text_offset"] == [0, len("\ufffda")]


def test_the_likelier_of_alternatives_with_equal_text_is_shown() -> None:
    tops = (Alternative(1, b"a", -0.5), Alternative(2, b"a", -2.0))
    assert encoded([TokenDetail(2, b"a", -2.0, tops)])["top_logprobs"] == [{"a": -0.5}]


@pytest.mark.parametrize(("shown", "name"), [(b"Once", b" Once"), (b"", b"<end>")])
def test_a_token_that_is_shown_in_part_is_one_entry(shown: bytes, name: bytes) -> None:
    """The echo of a text has no space before its first word, and a hidden control token has no text."""
    tops = (Alternative(3, b" The", -0.125), Alternative(2, name, -0.5))
    whole = encoded([TokenDetail(2, shown, -0.5, tops)])
    assert whole["tokens"] == [shown.decode()]
    assert whole["top_logprobs"] == [{" The": -0.125, shown.decode(): -0.5}]


def test_token_text_is_the_text_or_the_escaped_bytes() -> None:
    assert token_text("ж".encode()) == "ж"
    assert token_text(b"\xe2\x80") == "bytes:\\xe2\\x80"
    assert token_text(b"") == ""


def test_mean_logprob_divides_by_the_number_of_tokens() -> None:
    assert mean_logprob([TokenDetail(1, b"", -1.0), TokenDetail(1, b"", -2.0)]) == -1.5
    assert mean_logprob([]) == float("-inf")
