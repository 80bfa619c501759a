"""Completions read strictly, whole or streamed: each choice ends once, and no event follows its end."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
import pytest

from tests.gateway.server.sockets import Answer

STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
"""Fields of a request with a stream that this module can read."""
ALIKE: dict[str, Any] = {"cache_prompt": False, "speculative": False}
"""Fields of a request with the same result each time. Speculation follows measured times, and shows in the usage."""


@dataclass(frozen=True)
class Choice:
    text: str
    reason: str


@dataclass(frozen=True)
class Completion:
    choices: list[Choice]
    usage: dict[str, Any]


def assert_alike(one: Any, other: Any) -> None:
    """Raise `AssertionError` unless two JSON values are equal, their floats up to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, abs=1e-4)
    elif isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_alike(one[name], other[name])
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other)
        for value, counterpart in zip(one, other, strict=True):
            assert_alike(value, counterpart)
    else:
        assert one == other


def read_completion(answer: Answer) -> Completion:
    """Return the content of a successful answer."""
    assert answer.status == 200, answer.body
    if answer.headers["content-type"].startswith("text/event-stream"):
        return _read_stream(answer.body)
    body = orjson.loads(answer.body)
    assert [choice["index"] for choice in body["choices"]] == list(range(len(body["choices"])))
    return Completion([Choice(choice["text"], choice["finish_reason"]) for choice in body["choices"]], body["usage"])


def read_text(answer: Answer) -> str:
    """Return the text of an answer with one choice."""
    (choice,) = read_completion(answer).choices
    return choice.text


def read_error(answer: Answer) -> dict[str, Any]:
    """Return the error of a failed answer: from its status, or from the stream's last event without a clean end."""
    body = answer.body
    if answer.status == HTTPStatus.OK:
        *events, last, end = [event for event in body.split(b"\n\n") if not event.startswith(b":")]
        assert end == b""
        assert all(b'"choices"' in event for event in events)
        body = last.removeprefix(b"data: ")
    error: dict[str, Any] = orjson.loads(body)["error"]
    return error


def _read_stream(body: bytes) -> Completion:
    *events, done, end = [event for event in body.split(b"\n\n") if not event.startswith(b":")]
    assert (done, end) == (b"data: [DONE]", b"")
    *chunks, last = [orjson.loads(event.removeprefix(b"data: ")) for event in events]
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        index = choice["index"]
        assert index not in reasons, "nothing follows the end of a choice"
        texts[index] = texts.get(index, "") + choice["text"]
        if choice["finish_reason"]:
            reasons[index] = choice["finish_reason"]
    assert last["choices"] == []
    assert texts.keys() == reasons.keys() == set(range(len(texts)))
    return Completion([Choice(texts[index], reasons[index]) for index in range(len(texts))], last["usage"])
