"""`POST /v1/messages` and the count of its tokens, without a model: bytes in, bytes out."""

from functools import partial
from typing import Any

import anyio
import orjson
import pytest

from engine import Busy, EngineFault, Finished, FinishReason, RequestError, Text, Unavailable
from gateway.apis.anthropic.messages import endpoint
from gateway.apis.anthropic.signature import sign
from gateway.keys.ring import KeyRing
from gateway.middleware.streams import silence
from gateway.middleware.streams.sse import EventStream
from tests.gateway.apis.openai.chat.test_endpoint import CALL, engine_of, says
from tests.gateway.application import app_of, app_with_keys, gateway_of
from tests.gateway.asgi import AsgiCall, post
from tests.gateway.chat import templates
from tests.gateway.fake_engine import FakeEngine, FakeGeneration, Script

pytestmark = pytest.mark.anyio

PATH = "/v1/messages"
BODY: dict[str, Any] = {"model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
ADD = {"name": "add", "input_schema": {"type": "object", "properties": {"x": {}}}}
NO_CACHE = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}


async def ask(script: Script, template: str = templates.CHATML, **fields: Any) -> Any:
    """Return a whole message, or the events of a stream."""
    reply = await post(app_of(engine_of(script, template)), PATH, {**BODY, **fields})
    assert reply.status == 200, reply.content
    return events_of(reply.content) if fields.get("stream") else reply.json


def events_of(content: bytes) -> list[Any]:
    """Return the events of a stream, whose names are their types."""
    events = []
    for part in content.removesuffix(b"\n\n").split(b"\n\n"):
        name, data = part.split(b"\n")
        events.append(orjson.loads(data.removeprefix(b"data: ")))
        assert name == b"event: " + events[-1]["type"].encode()
    return events


def joined(events: list[Any]) -> list[Any]:
    """Return the content of a stream as that of a whole message."""
    content: list[Any] = []
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(content)
            content.append(event["content_block"])
        elif event["type"] == "content_block_delta":
            _, text = event["delta"].values()
            name = {"input_json_delta": "json"}.get(event["delta"]["type"], event["delta"]["type"].partition("_")[0])
            block = content[event["index"]]
            block[name] = block.get(name, "") + text
    for block in content:
        if "json" in block:
            block["input"] = orjson.loads(block.pop("json"))
    return content


def without_ids(content: list[Any]) -> list[Any]:
    return [{name: value for name, value in block.items() if name != "id"} for block in content]


async def test_a_whole_message_has_anthropics_shape() -> None:
    engine = engine_of()
    reply = await post(app_of(engine), PATH, BODY, x_request_id="mine")
    message = reply.json
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "tiny",
        "content": [{"type": "text", "text": "a0"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 51,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 1,
            "cache_creation": NO_CACHE,
            "output_tokens": 3,
            "output_tokens_details": {"thinking_tokens": 0},
            "service_tier": "standard",
        },
    }
    assert reply.header("request-id") == reply.header("x-request-id") == "mine"
    request = engine.generations[0].request
    assert (request.max_tokens, request.default_max_tokens) == (None, 9)
    assert request.prompts == ("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",)


@pytest.mark.parametrize(
    ("fields", "stop"),
    [
        ({}, ("END",)),
        ({"stop_sequences": ["."]}, (".",)),
        ({"stop_sequences": []}, ()),
        ({"stop_sequences": ["."], "stop": "!"}, ("!", ".")),
    ],
)
async def test_stop_sequences_replace_the_operators_stop_strings(fields: dict[str, Any], stop: tuple[str, ...]) -> None:
    engine = engine_of()
    await post(app_of(engine, stop=("END",)), PATH, {**BODY, **fields})
    assert engine.generations[0].request.stop == stop


async def test_a_stream_has_anthropics_events() -> None:
    start, *middle, delta, stop = await ask(says("a", "b"), stream=True)
    assert (start["type"], start["message"]["content"], start["message"]["stop_reason"]) == ("message_start", [], None)
    assert start["message"]["usage"]["input_tokens"] == 52
    assert [event["type"] for event in middle] == [
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
    ]
    assert delta == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {
            "input_tokens": 51,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 1,
            "output_tokens": 3,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }
    assert stop == {"type": "message_stop"}


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("", []),
        ("why</think>\nso", [("thinking", "why"), ("text", "so")]),
        (f"why</think>so{CALL}", [("thinking", "why"), ("text", "so"), ("tool_use", {"x": 1})]),
        (f"why</think>{CALL}{CALL}", [("thinking", "why"), ("tool_use", {"x": 1}), ("tool_use", {"x": 1})]),
    ],
)
@pytest.mark.parametrize("display", ["summarized", "omitted"])
async def test_a_stream_joins_to_the_whole_message(text: str, content: list[Any], display: str) -> None:
    template = "{# <tool_call> #}" + templates.THINKING
    fields = {"tools": [ADD], "thinking": {"type": "adaptive", "display": display}}
    whole = (await ask(says(text), template, **fields))["content"]
    streamed = joined(await ask(says(*text), template, stream=True, **fields))
    assert without_ids(whole) == without_ids(streamed)
    names = {"thinking": "thinking", "text": "text", "tool_use": "input"}
    shown = [(kind, "" if kind == "thinking" and display == "omitted" else value) for kind, value in content]
    assert [(block["type"], block[names[block["type"]]]) for block in whole] == shown
    assert all(block["signature"] == sign(block["thinking"]) for block in whole if block["type"] == "thinking")
    assert all(block["id"].startswith("toolu_") for block in whole if block["type"] == "tool_use")


async def test_the_usage_counts_the_tokens_of_thinking_also_where_it_is_omitted() -> None:
    def thinks(generation: FakeGeneration) -> None:
        generation.put(Finished(0, "why</think>so", FinishReason.STOP, 7, 0, reasoning=3))

    thinking = {"type": "adaptive", "display": "omitted"}
    whole = await ask(thinks, templates.THINKING, thinking=thinking)
    start, *_, delta, _stop = await ask(thinks, templates.THINKING, thinking=thinking, stream=True)
    assert whole["usage"]["output_tokens_details"] == {"thinking_tokens": 3}
    assert delta["usage"]["output_tokens_details"] == {"thinking_tokens": 3}
    assert start["message"]["usage"]["output_tokens_details"] == {"thinking_tokens": 0}


def ends(reason: FinishReason, tokens: int, text: str = "a", stop: str | None = None) -> Script:
    return lambda generation: generation.put(Finished(0, text, reason, tokens, 0, stop=stop))


@pytest.mark.parametrize(
    ("script", "reason", "sequence"),
    [
        (ends(FinishReason.STOP, 3), "end_turn", None),
        (ends(FinishReason.STOP, 3, stop="."), "stop_sequence", "."),
        (ends(FinishReason.STOP, 3, CALL), "tool_use", None),
        (ends(FinishReason.STOP, 3, CALL[:-17], stop="1"), "stop_sequence", "1"),
        (ends(FinishReason.STOP, 3, CALL.replace("1", "1, y")), "end_turn", None),
        (ends(FinishReason.LENGTH, 9), "max_tokens", None),
        (ends(FinishReason.LENGTH, 9, CALL), "max_tokens", None),
        (ends(FinishReason.LENGTH, 8), "model_context_window_exceeded", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_stop_reason_tells_the_end(script: Script, reason: str, sequence: str | None, stream: bool) -> None:
    answer = await ask(script, tools=[ADD], stream=stream)
    end = answer[-2]["delta"] if stream else answer
    assert (end["stop_reason"], end["stop_sequence"]) == (reason, sequence)


@pytest.mark.parametrize(
    ("end", "text", "calls"),
    [
        (ends(FinishReason.STOP, 3, f"I look.{CALL.replace('1', '1, y')}"), 'I look.add({"x": 1, y}}\n</tool_call>', 0),
        (ends(FinishReason.STOP, 3, CALL[:-17], stop="1"), 'add({"x":', 0),
        (ends(FinishReason.LENGTH, 9, CALL.replace("1", "1, y") + CALL), 'add({"x": 1, y}}\n</tool_call>', 1),
        (ends(FinishReason.LENGTH, 9, CALL.replace("1", "1, y") + CALL[:-17]), 'add({"x": 1, y}}\n</tool_call>', 1),
    ],
    ids=["malformed", "stop string", "malformed before another", "malformed before one that a limit has cut"],
)
async def test_a_call_that_is_not_whole_is_text_unless_a_limit_has_cut_it(end: Script, text: str, calls: int) -> None:
    first, *others = (await ask(end, tools=[ADD]))["content"]
    assert (first["type"], first["text"]) == ("text", text)
    assert [block["type"] for block in others] == ["tool_use"] * calls


async def test_the_complete_part_of_an_input_that_a_limit_has_cut_is_returned() -> None:
    cut = ends(FinishReason.LENGTH, 9, '<tool_call>\n{"name": "add", "arguments": {"x": 1, "y": [2, ')
    (call,) = (await ask(cut, tools=[ADD]))["content"]
    assert call["input"] == {"x": 1, "y": [2]}


@pytest.mark.parametrize(("text", "value"), [(f"1{'0' * 40}", 1e40), ("1e999", None), (f"1{'0' * 5000}", "nothing")])
async def test_numbers_of_any_size_do_not_fail(text: str, value: object) -> None:
    script = ends(FinishReason.STOP, 9, f'<tool_call>\n{{"name": "add", "arguments": {{"x": {text}}}}}\n</tool_call>')
    answer = await ask(script, tools=[ADD])
    inputs = [block["input"] for block in answer["content"] if block["type"] == "tool_use"]
    assert inputs == [{} if value == "nothing" else {"x": value}]


async def test_the_count_is_that_of_the_prompt() -> None:
    body = {name: value for name, value in BODY.items() if name != "max_tokens"}
    assert (await post(app_of(engine_of()), f"{PATH}/count_tokens", body)).json == {"input_tokens": 53}


@pytest.mark.parametrize("queued", [True, False])
async def test_pings_are_sent_while_the_prompt_is_queued_or_computed(
    queued: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(generation: FakeGeneration) -> None:
        generation.has_started = not queued

    monkeypatch.setattr(silence, "TICK", 0.01)
    monkeypatch.setattr(endpoint, "EventStream", partial(EventStream, keep_alive=0.01))
    engine = engine_of(script)
    gateway = gateway_of(engine)
    call = AsgiCall(gateway.app, PATH, orjson.dumps({**BODY, "stream": True}))
    async with gateway.silences.open(), anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        await call.sent(2)
        engine.generations[0].start()
        engine.generations[0].put(Text(0, "a"), Finished(0, "", FinishReason.STOP, 1, 0))
    kinds = [event["type"] for event in events_of(call.content)]
    assert kinds[:2] == ["ping", "ping"]
    assert kinds[-1] == "message_stop"


async def test_a_system_message_may_come_later_whatever_the_template_shows() -> None:
    engine = engine_of(template=templates.SYSTEM_FIRST)
    messages = [*BODY["messages"], {"role": "system", "content": "Be brief."}]
    await post(app_of(engine), PATH, {**BODY, "system": "Be kind.", "messages": messages})
    assert engine.generations[0].request.prompts == ("system: Be kind.\nuser: Hi\nBe brief.\n",)


async def test_an_agent_may_offer_the_tools_of_many_servers() -> None:
    engine = engine_of(template="{% for tool in tools %}{{ tool.function.name }} {% endfor %}")
    names = [f"mcp__server__{at}" for at in range(309)]
    reply = await post(app_of(engine), PATH, {**BODY, "tools": [{**ADD, "name": name} for name in names]})
    assert reply.status == 200, reply.content
    assert engine.generations[0].request.prompts == ("".join(f"{name} " for name in names),)


async def test_a_prompt_that_is_too_long_is_refused_in_anthropics_words() -> None:
    engine = engine_of()
    figures = {"n_prompt_tokens": 300, "n_ctx": 256}
    engine.refusal = RequestError("Too long.", code="context_length_exceeded", param="prompt", figures=figures)
    reply = await post(app_of(engine), PATH, BODY)
    assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")
    assert reply.json["error"]["message"] == "prompt is too long: 300 tokens > 255 maximum"


async def test_a_refusal_of_the_engine_names_anthropics_field() -> None:
    engine = engine_of()
    engine.refusal = RequestError("it is no schema", code="invalid_grammar", param="grammar")
    reply = await post(
        app_of(engine), PATH, {**BODY, "output_config": {"format": {"type": "json_schema", "schema": {}}}}
    )
    assert reply.json["error"]["message"] == "output_config: it is no schema"


@pytest.mark.parametrize(
    ("refusal", "status", "kind"),
    [
        (Busy("Full.", code="queue_full", retry_after=3), 529, "overloaded_error"),
        (Unavailable("Loading.", code="engine_unavailable"), 529, "overloaded_error"),
        (EngineFault("Dead.", code="engine_died"), 529, "overloaded_error"),
        (EngineFault("Broken.", code="decode_failed"), 500, "api_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_failures_have_anthropics_status_and_type(refusal: Any, status: int, kind: str, stream: bool) -> None:
    engine = engine_of()
    engine.refusal = refusal
    reply = await post(app_of(engine), PATH, {**BODY, "stream": stream}, x_request_id="mine")
    assert reply.status == status
    error = {"type": kind, "message": refusal.message, "details": {"error_code": refusal.code}}
    assert reply.json == {"type": "error", "error": error, "request_id": "mine"}
    assert (reply.header("retry-after") is not None) is (status == 529)


async def test_a_failure_in_the_middle_is_an_error_event() -> None:
    engine = engine_of(lambda generation: generation.put(Text(0, "a")))
    async with AsgiCall(app_of(engine), PATH, orjson.dumps({**BODY, "stream": True})).running() as call:
        await call.sent(1)
        engine.generations[0].fail(EngineFault("Dead.", code="engine_died"))
    *_, last = events_of(call.content)
    assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")


@pytest.mark.parametrize("headers", [{}, {"x_api_key": "sk-2"}])
async def test_a_missing_or_wrong_key_is_an_authentication_error(headers: dict[str, str]) -> None:
    app = app_with_keys(KeyRing(["sk-1"]), engine_of())
    reply = await post(app, PATH, BODY, **headers)
    assert (reply.status, reply.json["error"]["type"]) == (401, "authentication_error")
    assert reply.header("request-id") == reply.json["request_id"]
    assert (await post(app, PATH, BODY, x_api_key="sk-1")).status == 200


async def test_other_failures_before_routing_have_the_shape_too() -> None:
    app = app_of(FakeEngine(), body_limit=10)
    reply = await post(app, PATH, BODY)
    assert (reply.status, reply.json["error"]["type"]) == (413, "request_too_large")
    reply = await AsgiCall(app, PATH, method="GET").run()
    assert (reply.status, reply.json["error"]["type"]) == (405, "invalid_request_error")
    reply = await post(app_of(engine_of()), PATH, {**BODY, "model": "claude"})
    assert (reply.status, reply.json["error"]["type"]) == (404, "not_found_error")
    reply = await post(app_of(engine_of()), f"{PATH}/batches", {})
    assert (reply.status, reply.json["error"]["type"]) == (404, "not_found_error")


async def test_a_client_of_this_api_gets_its_errors_also_on_the_paths_of_models_and_on_unknown_ones() -> None:
    app, keyed = app_of(engine_of()), app_with_keys(KeyRing(["sk-1"]), engine_of())
    own = {"anthropic-version": "2023-06-01", "x-request-id": "mine"}
    for asked, path, status, kind, code in (
        (app, "/v1/models/claude", 404, "not_found_error", "model_not_found"),
        (app, "/v1/complete", 404, "not_found_error", "not_found"),
        (keyed, "/v1/models", 401, "authentication_error", "invalid_api_key"),
        (keyed, "/v1/models/tiny", 401, "authentication_error", "invalid_api_key"),
    ):
        reply = await AsgiCall(asked, path, method="GET", headers=own).run()
        error = reply.json["error"]
        assert (reply.status, error["type"], error["details"]) == (status, kind, {"error_code": code})
        assert (reply.json["type"], reply.json["request_id"], reply.header("request-id")) == ("error", "mine", "mine")
        other = await AsgiCall(asked, path, method="GET").run()
        assert (other.status, other.json["error"]["code"]) == (status, code)
    reply = await AsgiCall(app, "/v1/models", method="DELETE", headers=own).run()
    assert (reply.status, reply.json["error"]["type"]) == (405, "invalid_request_error")
    reply = await AsgiCall(app, "/v1/chat/completions", b"{}", headers=own).run()
    assert reply.json["error"]["code"] == "missing_required_parameter"


@pytest.mark.parametrize("kind", ["web_search_20250305", [], {}, ["custom"], 5, True])
async def test_a_tool_of_another_type_is_refused_by_its_place(kind: object) -> None:
    reply = await post(app_of(engine_of()), PATH, {**BODY, "tools": [{**ADD, "type": kind}]})
    assert reply.status == 400
    assert reply.json["error"]["message"].startswith("tools[0].type: this server runs no tools")


async def test_unknown_fields_are_refused_unless_the_client_names_a_beta(caplog: pytest.LogCaptureFixture) -> None:
    body = {**BODY, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "new": 1}]}]}
    reply = await post(app_of(engine_of()), PATH, body)
    assert reply.json["error"]["message"] == "messages.content.new: Extra inputs are not permitted"
    assert (reply.header("x-llama-gateway-ignored"), caplog.messages) == (None, [])
    reply = await post(app_of(engine_of()), PATH, body, anthropic_beta="new-2026-11-01")
    assert (reply.status, reply.header("x-llama-gateway-ignored")) == (200, "messages.content.new")
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("path", "fields"), [(PATH, BODY), (f"{PATH}/count_tokens", {"model": "tiny", "messages": BODY["messages"]})]
)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("keep", ["all", {"type": "all"}])
async def test_an_edit_that_clears_no_thinking_is_accepted(
    path: str, fields: dict[str, Any], strict: bool, keep: object
) -> None:
    managed = {"edits": [{"type": "clear_thinking_20251015", "keep": keep}]}
    body = {**fields, "context_management": managed}
    reply = await post(app_of(engine_of(), strict_fields=strict), path, body, anthropic_beta="context-management")
    assert (reply.status, reply.header("x-llama-gateway-ignored")) == (200, None)


@pytest.mark.parametrize(
    "edit",
    [
        {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}},
        {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
        {"type": "clear_thinking_20251015"},
        {"type": "compact_20260112", "instructions": "Keep all names."},
    ],
)
async def test_an_edit_that_this_server_does_not_make_is_reported(edit: dict[str, Any]) -> None:
    place = f"context_management.edits.{edit['type']}"
    body = {**BODY, "context_management": {"edits": [edit]}}
    beta = {"anthropic_beta": "context-management"}
    reply = await post(app_of(engine_of()), PATH, body, **beta)
    assert (reply.status, reply.header("x-llama-gateway-ignored")) == (200, place)
    reply = await post(app_of(engine_of(), strict_fields=True), PATH, body, **beta)
    assert (reply.status, reply.json["error"]["message"]) == (400, f"Unknown field: {place!r}")
    reply = await post(app_of(engine_of()), PATH, body)
    assert reply.json["error"]["message"] == f"{place}: Extra inputs are not permitted"


@pytest.mark.parametrize("edits", [{}, [{}], ["clear_thinking_20251015"], [{"type": "new"}] * 17])
async def test_malformed_edits_are_refused(edits: object) -> None:
    reply = await post(app_of(engine_of()), PATH, {**BODY, "context_management": {"edits": edits}})
    assert reply.status == 400
    assert reply.json["error"]["message"].startswith("context_management.edits")


async def test_the_budget_of_thinking_reaches_the_engine() -> None:
    engine = engine_of(template=templates.THINKING)
    await post(app_of(engine), PATH, {**BODY, "thinking": {"type": "enabled", "budget_tokens": 5}})
    reasoning = engine.generations[0].request.reasoning
    assert reasoning is not None
    assert (reasoning.budget, reasoning.opened) == (5, True)


async def test_disabled_thinking_closes_the_prompts_reasoning() -> None:
    engine = engine_of(template=templates.THINKING)
    await post(app_of(engine), PATH, {**BODY, "thinking": {"type": "disabled"}})
    (prompt,) = engine.generations[0].request.prompts
    assert str(prompt).endswith("</think>\n\n")
