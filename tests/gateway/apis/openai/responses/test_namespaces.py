"""Tools in namespaces: the model calls them by joined names, and clients never see these."""

import json
from typing import Any

import orjson
import pytest

from engine import RequestError
from gateway.apis.fields.tools import MAX_TOOLS
from gateway.apis.openai.responses.tools.fields import ResponseToolFields
from gateway.apis.openai.responses.tools.names import with_model_name
from gateway.chat.tools import Named
from tests.gateway.apis.openai.responses.asking import PATH, TOOL, answering, chatting, events_of
from tests.gateway.application import app_of
from tests.gateway.asgi import get, post

LIST = {"type": "function", "name": "list", "description": "Lists.", "parameters": TOOL["parameters"], "strict": True}
RUN = {"type": "custom", "name": "run", "description": "Runs.", "format": {"type": "text"}}
CRM = {"type": "namespace", "name": "crm", "description": "About customers.", "tools": [LIST, RUN]}
SHOP = {"type": "namespace", "name": "mcp__shop", "description": "", "tools": [{**LIST, "strict": False}]}
TOOLS = [TOOL, CRM, SHOP]


def calling(name: str, arguments: Any) -> str:
    """Return a call as the model writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def read(tools: Any = TOOLS, **fields: Any) -> ResponseToolFields:
    return ResponseToolFields.model_validate({"tools": tools, **fields})


def param_of(**fields: Any) -> tuple[str | None, str]:
    """Return the field that is refused, and the reason."""
    with pytest.raises(RequestError) as caught:
        read(**fields).tool_set()
    place, _, reason = caught.value.message.partition(": ")
    assert place == caught.value.param
    return caught.value.param, reason


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (calling("add", {}), ("function_call", None, "add")),
        (calling("crm__list", {}), ("function_call", "crm", "list")),
        (calling("mcp__shop__list", {}), ("function_call", "mcp__shop", "list")),
        (calling("crm__run", {"input": "a"}), ("custom_tool_call", "crm", "run")),
    ],
)
async def test_a_call_has_its_namespace_and_its_own_name(written: str, expected: tuple[str, str | None, str]) -> None:
    engine = chatting(answering(written))
    answer = (await post(app_of(engine), PATH, {"input": "Hi", "tools": TOOLS})).json
    (call,) = answer["output"]
    assert (call["type"], call.get("namespace"), call["name"]) == expected
    assert engine.prompt.startswith("<tool>add<tool>crm__list<tool>crm__run<tool>mcp__shop__list<|im_start|>")
    assert answer["tools"][1:] == [CRM, SHOP]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("written", "done"),
    [
        (calling("crm__list", {"a": 1}), "response.function_call_arguments.done"),
        (calling("crm__run", {"input": "a"}), "response.custom_tool_call_input.done"),
    ],
)
async def test_events_of_a_call_have_its_namespace_and_its_own_name(written: str, done: str) -> None:
    fields = {"input": "Hi", "tools": TOOLS, "stream": True}
    content = (await post(app_of(chatting(answering(written))), PATH, fields)).content
    events = events_of(content)
    items = [event["item"] for event in events if "item" in event]
    assert len(items) == 2
    assert {item["namespace"] for item in items} == {"crm"}
    (whole,) = (event for event in events if event["type"] == done)
    assert whole.get("name", "list") == "list"
    assert b"crm__" not in content


@pytest.mark.anyio
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("written", "kind"),
    [(calling("crm__list", {"a": 1}), "function_call"), (calling("crm__run", {"input": "a"}), "custom_tool_call")],
)
async def test_a_call_and_its_output_become_input(stored: bool, written: str, kind: str) -> None:
    engine = chatting(answering(written))
    app = app_of(engine)
    first = (await post(app, PATH, {"input": "Hi", "tools": TOOLS})).json
    (call,) = first["output"]
    assert (await get(app, f"{PATH}/{first['id']}")).json["output"] == [call]
    named = {"name": call["name"], "namespace": "crm"}
    output = {"type": f"{kind}_output", "call_id": call["call_id"], "output": "fine", **named}
    continued = {"input": [output], "previous_response_id": first["id"]}
    fields: dict[str, Any] = continued if stored else {"input": [call, output]}
    reply = await post(app, PATH, {**fields, "tools": TOOLS})
    assert reply.status == 200, reply.content
    assert reply.header("x-llama-gateway-ignored") is None
    assert f'{{"name": "crm__{call["name"]}", ' in engine.prompt
    assert "tool\nfine" in engine.prompt
    if not stored:
        inputs = (await get(app, f"{PATH}/{reply.json['id']}/input_items")).json["data"]
        assert inputs[-1] == call
    counted = await post(app, f"{PATH}/input_tokens", {**fields, "tools": TOOLS})
    assert counted.json["input_tokens"] > 0


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
    assert '{"name": "crm__list", ' in engine.prompt
    inputs = (await get(app, f"{PATH}/{reply.json['id']}/input_items")).json["data"]
    assert {**inputs[-1], **call} == inputs[-1]


@pytest.mark.anyio
async def test_a_conversation_keeps_the_namespace_of_a_call() -> None:
    engine = chatting(answering(calling("crm__list", {})))
    app = app_of(engine)
    conversation = (await post(app, "/v1/conversations", {})).json["id"]
    fields = {"conversation": conversation, "tools": TOOLS}
    (call,) = (await post(app, PATH, {**fields, "input": "Hi"})).json["output"]
    items = (await get(app, f"/v1/conversations/{conversation}/items")).json["data"]
    assert items[0] == call
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "fine"}
    assert (await post(app, PATH, {**fields, "input": [output]})).status == 200
    assert '{"name": "crm__list", ' in engine.prompt


def test_only_a_call_in_a_namespace_is_changed_for_the_template() -> None:
    said = orjson.dumps({"type": "message", "content": [{"type": "input_text", "text": '"namespace":"crm"'}]})
    assert with_model_name(said) == said
    call = {"type": "function_call", "call_id": "c", "name": "list", "arguments": '{"namespace":"x"}'}
    assert with_model_name(orjson.dumps(call)) == orjson.dumps(call)
    changed = orjson.loads(with_model_name(orjson.dumps({**call, "namespace": "crm"})))
    assert changed == {**call, "name": "crm__list"}


def test_the_first_tool_of_a_namespace_has_its_description() -> None:
    plain, first, second, other = read().tool_set().tools
    assert first.description == "Lists.\n\nAbout all tools `crm__…`: About customers."
    assert (plain.description, second.description, other.description) == (None, "Runs.", "Lists.")
    assert (first.strict, second.custom, other.strict) == (True, True, False)
    silent = {**CRM, "tools": [{"type": "function", "name": "list"}]}
    (tool,) = read([silent]).tool_set().tools
    assert tool.description == "About all tools `crm__…`: About customers."
    (tool,) = read([{**silent, "description": ""}]).tool_set().tools
    assert tool.description is None


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "name": "add"}, "add"),
        ({"type": "function", "name": "list", "namespace": "crm"}, "crm__list"),
        ({"type": "function", "name": "list", "namespace": "mcp__shop"}, "mcp__shop__list"),
        ({"type": "custom", "name": "run"}, "crm__run"),
    ],
)
def test_a_choice_names_a_tool_in_a_namespace(choice: dict[str, str], name: str) -> None:
    fields = read(tool_choice=choice)
    assert fields.tool_set().choice == Named(name)
    assert fields.tool_choice_to_json() == choice


def test_a_choice_without_a_namespace_prefers_a_plain_tool() -> None:
    fields = read([CRM, {**TOOL, "name": "list"}], tool_choice={"type": "function", "name": "list"})
    assert fields.tool_set().choice == Named("list")


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        ([{"type": "namespace", "name": "crm"}], ["crm__list", "crm__run"]),
        ([{"type": "custom", "name": "run"}, {"type": "function", "name": "add"}], ["add", "crm__run"]),
        ([{"type": "function", "name": "list", "namespace": "mcp__shop"}], ["mcp__shop__list"]),
    ],
)
def test_a_choice_allows_tools_in_namespaces(allowed: list[dict[str, str]], names: list[str]) -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    fields = read(tool_choice=choice)
    found = fields.tool_set()
    assert ([tool.name for tool in found.tools], found.choice) == (names, "required")
    assert sorted(fields.namespaces()) == [name for name in names if "__" in name]
    assert fields.tool_choice_to_json() == choice


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({"type": "function", "name": "list"}, "the function 'list', which several namespaces have: give one of them"),
        ({"type": "function", "name": "crm__list"}, "the function 'crm__list', which is not offered"),
        ({"type": "function", "name": "run"}, "the function 'run', which is not offered"),
        (
            {"type": "custom", "name": "run", "namespace": "shop"},
            "the custom tool 'run' of the namespace 'shop', which is not offered",
        ),
    ],
)
def test_a_choice_of_a_tool_that_is_not_certain_is_refused(named: dict[str, str], reason: str) -> None:
    assert param_of(tool_choice=named) == ("tool_choice", f"names {reason}")
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [named]}
    assert param_of(tool_choice=allowed) == ("tool_choice", f"allows {reason}")


def test_a_namespace_that_is_not_offered_is_not_allowed() -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "namespace", "name": "shop"}]}
    assert param_of(tool_choice=choice) == ("tool_choice", "allows the namespace 'shop', which is not offered")


@pytest.mark.parametrize(
    ("tools", "place"),
    [
        ([{**CRM, "name": "a.b"}], "tools[0].name"),
        ([{**CRM, "name": "a" * 65}], "tools[0].name"),
        ([{**CRM, "description": None}], "tools[0].description"),
        ([{**CRM, "tools": []}], "tools[0].tools"),
        ([TOOL, {**CRM, "tools": [LIST, {"type": "function", "name": "a.b"}]}], "tools[1].tools[1].name"),
        ([TOOL, {**CRM, "tools": [{**LIST, "defer_loading": True}]}], "tools[1].tools[0].defer_loading"),
        ([{**CRM, "tools": [{"type": "web_search"}]}], "tools[0].tools[0].type"),
        ([{**CRM, "tools": [CRM]}], "tools[0].tools[0].type"),
        ([CRM, {**CRM, "tools": [LIST]}], "tools"),
        ([CRM, {**TOOL, "name": "crm__list"}], "tools"),
    ],
)
def test_a_wrong_namespace_is_refused_by_its_place(tools: list[Any], place: str) -> None:
    assert param_of(tools=tools)[0] == place


def test_tools_in_namespaces_count_as_tools() -> None:
    def spaces(count: int) -> list[dict[str, Any]]:
        functions = [{**LIST, "name": f"f{at}"} for at in range(64)]
        return [{**SHOP, "name": f"n{at}", "tools": functions} for at in range(count)]

    most = MAX_TOOLS // 64
    assert len(read(spaces(most)).tool_set().tools) == MAX_TOOLS
    with pytest.raises(ValueError, match=f"at most {MAX_TOOLS} tools, with those in namespaces"):
        read([*spaces(most), TOOL])


def test_a_namespace_may_be_given_in_parts() -> None:
    parts = [{**CRM, "tools": [LIST]}, {**CRM, "description": "More.", "tools": [RUN]}]
    assert [tool.name for tool in read(parts).tool_set().tools] == ["crm__list", "crm__run"]
