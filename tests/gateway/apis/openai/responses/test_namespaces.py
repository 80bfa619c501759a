"""Calls of tools in namespaces."""

import orjson
import pytest

from engine import text_of
from gateway.apis.openai.responses.tools.names import with_model_name
from tests.gateway.apis.openai.responses.asking import PATH, answering, chatting
from tests.gateway.application import app_of
from tests.gateway.asgi import get, post


def test_only_a_call_in_a_namespace_is_changed_for_the_template() -> None:
    said = orjson.dumps({"type": "message", "content": [{"type": "input_text", "text": '"namespace":"crm"'}]})
    assert with_model_name(said) == said
    call = {"type": "function_call", "call_id": "c", "name": "list", "arguments": '{"namespace":"x"}'}
    assert with_model_name(orjson.dumps(call)) == orjson.dumps(call)
    changed = orjson.loads(with_model_name(orjson.dumps({**call, "namespace": "crm"})))
    assert changed == {**call, "name": "crm__list"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "call",
    [
        {"type": "function_call", "call_id": "c", "name": "list", "namespace": "crm", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c", "name": "list", "namespace": "crm", "input": "a"},
    ],
)
async def test_a_call_of_the_input_keeps_its_namespace(call: dict[str, str]) -> None:
    engine = chatting(answering("x"))
    app = app_of(engine)
    output = {"type": f"{call['type']}_output", "call_id": "c", "output": "fine", "name": "list", "namespace": "crm"}
    reply = await post(app, PATH, {"input": [call, output]})
    assert (reply.status, reply.header("x-llama-gateway-ignored")) == (200, None)
    assert '{"name": "crm__list", ' in text_of(engine.generations[-1].request.prompts[0])  # type: ignore[arg-type]
    inputs = (await get(app, f"{PATH}/{reply.json['id']}/input_items")).json["data"]
    assert {**inputs[-1], **call} == inputs[-1]
