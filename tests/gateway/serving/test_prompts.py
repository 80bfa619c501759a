"""The templates of a served model."""

import logging
from dataclasses import replace

import pytest
from typing_extensions import override

from gateway.chat.conversation import ChatPrompt, Conversation
from gateway.chat.rendering import encode_conversation
from gateway.chat.template_key import TemplateKey
from gateway.middleware.caller import Caller
from gateway.preparation.preparer import InlinePreparer
from gateway.serving.prompts import ChatPrompts
from tests.gateway.fake_engine import MODEL, FakeEngine

pytestmark = pytest.mark.anyio


class NotingPreparer(InlinePreparer):
    """Notes the templates that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.templates: list[TemplateKey] = []

    @override
    async def render(self, caller: Caller, template: TemplateKey, conversation: bytes) -> ChatPrompt:
        self.templates.append(template)
        return await super().render(caller, template, conversation)


async def test_the_key_of_a_loaded_model_is_made_once() -> None:
    engine, preparer = FakeEngine(), NotingPreparer()
    prompts = ChatPrompts(engine.as_engine(), "{{ messages[0].content }}", preparer)
    conversation = encode_conversation(Conversation(messages=({"role": "user", "content": "a"},)))
    another = replace(MODEL, eos="another")
    for model in (MODEL, MODEL, another):
        engine.model = model
        await prompts.prompt(Caller(request_id="r"), conversation)
    first, second, third = preparer.templates
    assert second is first
    assert third.eos == "another"


@pytest.mark.parametrize(
    ("own", "models", "used"),
    [(None, None, "F"), (None, "M", "M"), ("O", "M", "O"), ("O", None, "O")],
)
async def test_the_fallback_is_for_a_model_without_a_template(own: str | None, models: str | None, used: str) -> None:
    engine, preparer = FakeEngine(chat_template=models), NotingPreparer()
    prompts = ChatPrompts(engine.as_engine(), own, preparer, fallback="F")
    conversation = encode_conversation(Conversation(messages=({"role": "user", "content": "a"},)))
    await prompts.prompt(Caller(request_id="r"), conversation)
    assert preparer.templates[0].source == used == prompts.source(await engine.ready())


@pytest.mark.parametrize(
    ("own", "models", "generates", "warned"),
    [(None, None, True, True), ("O", None, True, False), (None, "M", True, False), (None, None, False, False)],
)
async def test_a_model_without_a_template_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture, own: str | None, models: str | None, generates: bool, warned: bool
) -> None:
    engine = FakeEngine()
    engine.model = replace(MODEL, chat_template=models, generates=generates)
    await ChatPrompts(engine.as_engine(), own, InlinePreparer()).check("tiny")
    text = "the model tiny has no chat template, so that chats are refused: --chat-template FILE"
    assert caplog.record_tuples == [("gateway.serving.prompts", logging.WARNING, text)] * warned
