"""`/tokenizer_info`: vLLM's description of the tokenizer."""

from dataclasses import replace

import pytest

from tests.gateway.application import app_of
from tests.gateway.asgi import get
from tests.gateway.chat import templates
from tests.gateway.fake_engine import MODEL, FakeEngine

pytestmark = pytest.mark.anyio

PATH = "/tokenizer_info"


async def test_it_has_the_special_tokens_and_the_template() -> None:
    engine = FakeEngine()
    engine.model = replace(MODEL, chat_template=templates.CHATML, bos="<s>", eos="</s>")
    assert (await get(app_of(engine), PATH)).json == {
        "tokenizer_class": "llama.cpp",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": templates.CHATML,
    }


async def test_a_token_that_the_vocabulary_lacks_is_null() -> None:
    engine = FakeEngine()
    engine.model = replace(MODEL, chat_template=None, bos="", eos="</s>")
    answer = (await get(app_of(engine), PATH)).json
    assert (answer["bos_token"], answer["eos_token"], answer["chat_template"]) == (None, "</s>", None)


async def test_an_unknown_model_is_a_404() -> None:
    assert (await get(app_of(FakeEngine()), f"{PATH}?model=other")).status == 404
