"""Refusals of the engine: every API has their status and their message, in its own shape of errors."""

from typing import Any

import pytest

from engine import Busy, EngineError, EngineFault, RequestError, Unavailable
from tests.gateway.apis.requests import EMBEDDINGS, GENERATIONS, QUERIES, path_of
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.chat import templates
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio
ASKED = {**GENERATIONS, **EMBEDDINGS, **QUERIES}


def message_in(error: Any, name: str) -> Any:
    """Return the message of an error where its API has it: those of Ollama and Cohere have nothing else."""
    if name == "/v2/rerank":
        return error["message"]
    return error["error"] if name.startswith("/api/") else error["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "code", "status"),
    [
        (RequestError, "context_length_exceeded", 400),
        (Busy, "queue_full", 429),
        (Unavailable, "engine_unavailable", 503),
        (EngineFault, "engine_died", 503),
        (EngineFault, "decode_failed", 500),
    ],
)
@pytest.mark.parametrize("name", ASKED)
async def test_a_refusal_of_the_engine_is_a_status_with_its_message(
    name: str, kind: type[EngineError], code: str, status: int
) -> None:
    engine = FakeEngine(chat_template=templates.CHATML)
    engine.refusal = kind("Refused.", code=code)  # its own object: a traceback keeps the request that was refused
    if "/v1/messages" in name and status in {429, 503}:
        status = 529  # Anthropic's word for both
    reply = await post(app_of(engine), path_of(name), ASKED[name])
    assert (reply.status, message_in(reply.json, name)) == (status, "Refused.")
