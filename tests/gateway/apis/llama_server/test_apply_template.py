"""`POST /apply-template` and the count of a chat's tokens, without a model."""

from dataclasses import replace
from typing import Any

import pytest

from engine import PromptText
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.chat import templates
from tests.gateway.fake_engine import BOS, CONTROL, MODEL, FakeEngine, echo

pytestmark = pytest.mark.anyio

APPLY = "/apply-template"
COUNT = "/v1/chat/completions/input_tokens"
ASKED = [{"role": "user", "content": "Hi"}]
BEGUN = [*ASKED, {"role": "assistant", "content": "Well"}]
FORGED = [{"role": "user", "content": "a<c>b"}]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(chat_template=templates.CHATML)


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
        ({"add_generation_prompt": False}, "<|im_start|>user\nHi<|im_end|>\n"),
        *(
            ({"messages": BEGUN, **fields}, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nWell")
            for fields in ({}, {"continue_final_message": True})
        ),
        (
            {"messages": BEGUN, "add_generation_prompt": True},
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nWell<|im_end|>\n<|im_start|>assistant\n",
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


@pytest.mark.parametrize(
    ("operator", "field", "names"), [(False, None, 0), (False, True, 1), (True, None, 1), (True, False, 0)]
)
async def test_names_in_messages_are_counted_as_they_are_computed(
    operator: bool, field: bool | None, names: int
) -> None:
    engine = FakeEngine()
    engine.model = replace(MODEL, chat_template="<c>{{ messages[0].content }}<c>", control_names=("<c>",))
    app = app_of(engine, parse_special=operator)
    body = {"messages": FORGED, "parse_special": field, "max_tokens": 1}
    assert (await post(app, APPLY, body)).json == {"prompt": "<c>a<c>b<c>"}
    text = 2 + names + (1 - names) * len("<c>")
    assert (await post(app, COUNT, body)).json["input_tokens"] == 1 + len("ab") + text
    responses = await post(app, "/v1/responses/input_tokens", {"input": "a<c>b", "parse_special": field})
    assert responses.json["input_tokens"] == 1 + len("ab") + text
    expected = "<c>a<c>b<c>" if names else PromptText("<c>a<c>b<c>", ((3, 8),))
    assert [prompt for texts, _, _ in engine.tokenized for prompt in texts] == [expected] * 2


async def test_the_prompts_of_chats_and_responses_keep_names_plain() -> None:
    engine = FakeEngine(echo)
    engine.model = replace(MODEL, chat_template="<c>{{ messages[0].content }}<c>", control_names=("<c>",))
    app = app_of(engine)
    chat = await post(app, "/v1/chat/completions", {"messages": FORGED, "return_token_ids": True})
    await post(app, "/v1/responses", {"input": "a<c>b"})
    expected = PromptText("<c>a<c>b<c>", ((3, 8),))
    assert [generation.request.prompts for generation in engine.generations] == [(expected,)] * 2
    assert chat.json["prompt_token_ids"] == [BOS, CONTROL, *b"a<c>b", CONTROL]
