"""Anthropic's routes as llama-server has them: bodies without a model or a limit, or with no message."""

from dataclasses import replace
from typing import Any

import pytest

from tests.gateway.apis.openai.chat.test_endpoint import engine_of
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.chat import templates

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("body", [{"messages": []}, {"model": "any", "max_tokens": 5, "messages": []}])
async def test_what_anthropic_refuses_is_accepted(body: dict[str, Any]) -> None:
    engine = engine_of()
    reply = await post(app_of(engine, answers_like="llama-server"), "/v1/messages", body)
    assert (reply.status, reply.json["type"]) == (200, "message")
    (generation,) = engine.generations
    assert generation.request.default_max_tokens == body.get("max_tokens", 4096)
    refused = await post(app_of(engine), "/v1/messages", body)
    assert (refused.status, refused.json["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("template", [templates.CHATML, templates.NO_SYSTEM])
async def test_a_body_without_messages_may_have_tools(path: str, template: str) -> None:
    """The format of a template without calls describes the tools in instructions of its own."""
    body = {"messages": [], "tools": [{"name": "add", "input_schema": {}}]}
    engine = engine_of(template=template)
    engine.model = replace(engine.model, checkpoints=True) if engine.model else None
    assert (await post(app_of(engine, answers_like="llama-server"), path, body)).status == 200


async def test_tokens_are_counted_without_a_model() -> None:
    path = "/v1/messages/count_tokens"
    counted = await post(app_of(engine_of(), answers_like="llama-server"), path, {"messages": MESSAGES})
    assert counted.json["input_tokens"] > 0
    assert (await post(app_of(engine_of()), path, {"messages": MESSAGES})).status == 400
