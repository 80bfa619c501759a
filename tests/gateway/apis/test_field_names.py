"""An error names the field at fault as its API does, also where the engine's query has another name for it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine import RequestError
from tests.gateway.apis.openai.responses.asking import answering, chatting
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.fake_engine import MODEL, FakeEngine

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "a"}]
GAP = {"prefix": 1, "suffix": 2, "middle": 3}
TEXT = "content"
"""The engine's name of a text to tokenise."""


async def param(path: str, body: dict[str, Any], engine: FakeEngine, at_fault: str) -> str | None:
    """Return the field that an answer names where the engine refuses a query for one of its own fields."""
    engine.refusal = RequestError("too long", code="invalid_value", param=at_fault)
    reply = await post(app_of(engine), path, body)
    assert (reply.status, reply.json["error"]["message"]) == (400, "too long")
    named: str | None = reply.json["error"]["param"]
    return named


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES, "return_token_ids": True}, "messages"),
        ("/v1/chat/completions/input_tokens", {"messages": MESSAGES}, "messages"),
        ("/v1/completions", {"prompt": "a", "return_token_ids": True}, "prompt"),
        ("/v1/responses/input_tokens", {"input": "a"}, "input"),
        ("/completion", {"prompt": "a"}, "prompt"),
        ("/infill", {"input_prefix": "a", "input_suffix": "b"}, None),
        ("/tokenize", {"content": "a"}, "content"),
    ],
)
async def test_a_text_that_cannot_be_tokenised(path: str, body: dict[str, Any], named: str | None) -> None:
    engine = chatting(answering("x"))
    engine.model = replace(engine.model or MODEL, fill_tokens=GAP)
    assert await param(path, body, engine, TEXT) == named


async def test_a_biased_text_that_cannot_be_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def detokenize(_tokens: Sequence[int], **_options: Any) -> bytes:
        return b"a"

    engine = FakeEngine()
    monkeypatch.setattr(engine, "detokenize", detokenize)
    body = {"prompt": [97], "logit_bias": [["a", 1]]}
    assert await param("/completion", body, engine, TEXT) == "logit_bias"


async def test_a_conversation_that_is_cut_and_cannot_be_counted() -> None:
    engine = chatting(answering("x"))
    engine.model = replace(engine.model or MODEL, context=300)
    body = {"input": "a" * 200, "truncation": "auto"}
    assert await param("/v1/responses", body, engine, TEXT) == "input"


@pytest.mark.parametrize(
    ("path", "body", "at_fault", "named"),
    [
        ("/embedding", {"content": "a"}, "input", "content"),
        ("/embedding", {"input": "a"}, "input", "input"),
        ("/rerank", {"query": "q", "texts": ["a"]}, "documents", "texts"),
        ("/rerank", {"query": "q", "texts": ["a"]}, "query", "query"),
        ("/rerank", {"query": "q", "documents": ["a"]}, "documents", "documents"),
    ],
)
async def test_an_input_that_is_too_long(path: str, body: dict[str, Any], at_fault: str, named: str) -> None:
    assert await param(path, body, FakeEngine(), at_fault) == named
