"""`POST /apply-template` and the count of a chat's tokens, without a model."""

from dataclasses import replace
from typing import Any

import pytest

from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.chat import templates
from tests.gateway.fake_engine import MODEL, FakeEngine

pytestmark = pytest.mark.anyio

APPLY = "/apply-template"
COUNT = "/v1/chat/completions/input_tokens"
ASKED = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def engine() -> FakeEngine:
    engine = FakeEngine()
    engine.model = replace(MODEL, chat_template=templates.CHATML)
    return engine


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
        ({"add_generation_prompt": False}, "<|im_start|>user\nHi<|im_end|>\n"),
        (
            {"messages": [*ASKED, {"role": "assistant", "content": "Well"}], "continue_final_message": True},
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nWell",
        ),
    ],
)
async def test_apply_template_returns_the_prompt(engine: FakeEngine, fields: dict[str, Any], prompt: str) -> None:
    reply = await post(app_of(engine), APPLY, {"messages": ASKED, **fields})
    assert (reply.status, reply.json) == (200, {"prompt": prompt})
    assert not engine.generations


async def test_input_tokens_counts_the_tokens_of_the_whole_prompt(engine: FakeEngine) -> None:
    app = app_of(engine)
    prompt = (await post(app, APPLY, {"messages": ASKED})).json["prompt"]
    reply = await post(app, COUNT, {"messages": ASKED, "max_tokens": 5})
    assert reply.json == {"object": "response.input_tokens", "input_tokens": len(prompt) + 1}
    assert engine.tokenized == [((prompt,), True, True)]


@pytest.mark.parametrize("path", [APPLY, COUNT])
async def test_an_invalid_chat_is_refused(engine: FakeEngine, path: str) -> None:
    app = app_of(engine)
    assert (await post(app, path, {})).json["error"]["param"] == "messages"
    assert (await post(app, path, {"messages": ASKED, "model": "gpt-4"})).status == 404
    engine.model = replace(MODEL, chat_template="{{ raise_exception('Be polite.') }}")
    refused = await post(app, path, {"messages": ASKED})
    assert (refused.status, refused.json["error"]["message"]) == (400, "Be polite.")
