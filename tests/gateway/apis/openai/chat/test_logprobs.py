"""Log-probabilities in the shape of OpenAI's chat."""

from collections.abc import Sequence
from typing import Any

import orjson

from engine import Alternative, TokenDetail
from gateway.apis.answers.token_logprobs import MIN_LOGPROB
from gateway.apis.openai.chat.message import chat_logprobs


def encoded(details: Sequence[TokenDetail]) -> dict[str, Any]:
    whole: dict[str, Any] = orjson.loads(b"".join(chat_logprobs(details)))
    return whole


def test_chat_logprobs_have_a_token_and_its_alternatives() -> None:
    top = (Alternative(5, b"Hi", -0.5), Alternative(6, " ж".encode(), -1.5))
    assert encoded([TokenDetail(5, b"Hi", -0.5, top)]) == {
        "content": [
            {
                "token": "Hi",
                "logprob": -0.5,
                "bytes": [72, 105],
                "top_logprobs": [
                    {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]},
                    {"token": " ж", "logprob": -1.5, "bytes": [32, 208, 182]},
                ],
            }
        ],
        "refusal": None,
    }


def test_a_part_of_a_character_has_its_exact_bytes() -> None:
    (token,) = encoded([TokenDetail(5, b"\xd0", -1.0)])["content"]
    assert (token["token"], token["bytes"], token["top_logprobs"]) == ("\ufffd", [208], [])


def test_an_impossible_token_has_the_least_logprob() -> None:
    (token,) = encoded([TokenDetail(5, b"x", float("-inf"))])["content"]
    assert token["logprob"] == MIN_LOGPROB
