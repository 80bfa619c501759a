"""Tools that OpenAI runs itself: an offer that the model may ignore is left out and reported, a demand is refused."""

from typing import Any

import pytest

from tests.gateway.apis.openai.responses.asking import PATH, TOOL, answering, chatting
from tests.gateway.application import app_of
from tests.gateway.asgi import post

pytestmark = pytest.mark.anyio

SEARCH = {"type": "web_search", "external_web_access": False}


def allowing(mode: str, *kinds: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": [{"type": kind} for kind in kinds]}


@pytest.mark.parametrize("path", [PATH, f"{PATH}/input_tokens"])
@pytest.mark.parametrize(
    "kind",
    [
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
        "code_interpreter",
        "image_generation",
    ],
)
async def test_an_offer_is_left_out_and_reported(path: str, kind: str) -> None:
    fields = {"input": "Hi", "tools": [TOOL, {"type": kind, "container": {"type": "auto"}}]}
    reply = await post(app_of(chatting(answering("x"))), path, fields)
    assert reply.status == 200, reply.content
    assert reply.header("x-llama-gateway-ignored") == f"tools.{kind}"


@pytest.mark.parametrize(
    "choice", ["auto", "required", "none", allowing("auto", "web_search"), {"type": "function", "name": "add"}]
)
async def test_the_model_has_the_other_tools(choice: Any) -> None:
    engine = chatting(answering("x"))
    fields = {"input": "Hi", "tools": [SEARCH, TOOL], "tool_choice": choice}
    answer = (await post(app_of(engine), PATH, fields)).json
    assert [tool["name"] for tool in answer["tools"]] == ["add"]
    assert answer["tool_choice"] == choice
    shown = "" if choice == "none" or (isinstance(choice, dict) and "mode" in choice) else "<tool>add"
    assert engine.prompt.startswith(f"{shown}<|im_start|>")


async def test_a_strict_server_refuses_the_offer() -> None:
    engine = chatting(answering("x"))
    reply = await post(app_of(engine, strict_fields=True), PATH, {"input": "Hi", "tools": [TOOL, SEARCH]})
    assert (reply.status, reply.json["error"]["param"]) == (400, "tools.web_search")
    assert not engine.generations


@pytest.mark.parametrize(
    ("tools", "choice", "param", "reason"),
    [
        ([SEARCH], "required", "tool_choice", "is required, but this server runs none of the tools"),
        ([SEARCH, TOOL], allowing("required", "web_search"), "tool_choice", "is required, but this server runs none"),
        ([SEARCH], {"type": "web_search_preview"}, "tool_choice.type", "should be one of function"),
        ([SEARCH], allowing("auto", "image_generation"), "tool_choice", "'image_generation', which is not offered"),
        ([TOOL, {"type": "file_search", "vector_store_ids": ["vs_1"]}], "auto", "tools[1]", "'file_search' are not"),
        ([{"type": "mcp", "server_label": "a", "server_url": "b"}], "auto", "tools[0]", "'mcp' are not supported"),
        ([{"type": "local_shell"}], "auto", "tools[0]", "'local_shell' are not supported; describe a function"),
    ],
)
async def test_a_demand_is_refused(tools: list[Any], choice: Any, param: str, reason: str) -> None:
    engine = chatting(answering("x"))
    reply = await post(app_of(engine), PATH, {"input": "Hi", "tools": tools, "tool_choice": choice})
    assert (reply.status, reply.json["error"]["param"]) == (400, param)
    assert reason in reply.json["error"]["message"]
    assert not engine.generations
