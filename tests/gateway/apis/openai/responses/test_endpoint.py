"""`POST /v1/responses` without a model: the engine's requests, and the responses made of its answers."""

import json
from typing import Any

import pytest

from engine import EngineFault, FinishReason, GrammarKind, RequestError, Text
from tests.gateway.apis.openai.responses.asking import (
    CALL,
    PATH,
    THOUGHT,
    TOOL,
    answering,
    chatting,
    events_of,
    names,
    without_ids,
)
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


def item_text(item: dict[str, Any]) -> str:
    (part,) = item["content"]
    text: str = part["text"]
    return text


async def ask(engine: FakeEngine, **fields: Any) -> dict[str, Any]:
    reply = await post(app_of(engine), PATH, {"input": "Hi", **fields})
    assert reply.status == 200, reply.content
    answer: dict[str, Any] = reply.json
    return answer


async def refused(**fields: Any) -> tuple[str | None, str | None, str]:
    """Return param, code and message of a 400."""
    engine = chatting(answering("x"))
    reply = await post(app_of(engine), PATH, {"input": "Hi", **fields})
    assert reply.status == 400, reply.content
    assert not engine.generations
    error = reply.json["error"]
    assert error["type"] == "invalid_request_error"
    return error["param"], error["code"], error["message"]


async def test_a_whole_response_has_openais_shape() -> None:
    answer = await ask(chatting(answering("Hello")), metadata={"a": "b"}, user="me")
    assert answer["id"].startswith("resp_")
    assert isinstance(answer["created_at"], int)
    assert isinstance(answer["completed_at"], int)
    assert answer["output"][0]["id"].startswith("msg_")
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    assert without_ids(answer) == {
        "object": "response",
        "model": "tiny",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "output": [{"type": "message", "role": "assistant", "status": "completed", "content": [part]}],
        "usage": {
            "input_tokens": 52,
            "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
            "output_tokens": 6,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 58,
        },
        "background": False,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {"a": "b"},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": None},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": "me",
    }


async def test_the_request_reaches_the_engine() -> None:
    engine = chatting(answering("x"))
    await ask(engine, instructions="Be.", max_output_tokens=7, temperature=0.5, top_p=0.25, seed=3, top_k=4, stop="z")
    request = engine.generations[0].request
    prompt = "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert request.prompts == (prompt,)
    assert (request.max_tokens, request.stop, request.stream, request.logprobs) == (7, ("z",), False, None)
    assert (request.sampling.temperature, request.sampling.top_p) == (0.5, 0.25)
    assert (request.sampling.seed, request.sampling.top_k) == (3, 4)


@pytest.mark.parametrize(("given", "shown"), [({}, (0.25, 0.75)), ({"temperature": 0.5}, (0.5, 0.75))])
async def test_the_sampling_of_a_response_is_that_of_its_output(
    given: dict[str, float], shown: tuple[float, float]
) -> None:
    engine = chatting(answering("x"))
    reply = await post(app_of(engine, temperature=0.25, top_p=0.75), PATH, {"input": "Hi", **given})
    sampling = engine.generations[0].request.sampling
    assert (reply.json["temperature"], reply.json["top_p"]) == (sampling.temperature, sampling.top_p) == shown


FIRST = ["created", "in_progress"]
MESSAGE = [
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
]
REASONING = [name.replace("output_text", "reasoning_text") for name in MESSAGE]
CALLING = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Hello", MESSAGE),
        (THOUGHT + "Hello", REASONING + MESSAGE),
        (CALL, CALLING),
        (THOUGHT + CALL + "\n" + CALL, REASONING + CALLING + CALLING),
    ],
)
async def test_a_stream_has_openais_events(text: str, items: list[str]) -> None:
    reply = await post(app_of(chatting(answering(text))), PATH, {"input": "Hi", "tools": [TOOL], "stream": True})
    assert reply.header("content-type") == "text/event-stream; charset=utf-8"
    events = events_of(reply.content)
    assert names(events) == [*FIRST, *items, "completed"]
    assert events[0]["response"]["status"] == events[1]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []
    assert "usage" not in events[0]["response"]
    assert {event["response"]["id"] for event in events if "response" in event} == {events[0]["response"]["id"]}


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize(
    "text", ["", "Hello", "ж🐉<", THOUGHT + "Hello", THOUGHT + CALL, CALL + CALL, "a <tool_call>{"]
)
@pytest.mark.parametrize("reason", FinishReason)
async def test_a_streamed_response_equals_a_whole_one(text: str, reason: FinishReason, logprobs: bool) -> None:
    engine = chatting(answering(text, reason))
    fields: dict[str, Any] = {"input": "Hi", "tools": [TOOL], "top_logprobs": int(logprobs)}
    whole = (await post(app_of(engine), PATH, fields)).json
    events = events_of((await post(app_of(engine), PATH, {**fields, "stream": True})).content)
    assert without_ids(events[-1]["response"]) == without_ids(whole)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]


async def test_reasoning_is_an_item_and_its_tokens_are_counted() -> None:
    answer = await ask(chatting(answering(THOUGHT + "Hello")))
    thought, message = answer["output"]
    assert (thought["type"], thought["summary"], item_text(thought).strip()) == ("reasoning", [], "hm")
    assert item_text(message) == "Hello"
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] == len("\nhm\n")


@pytest.mark.parametrize("summary", ["auto", "concise", "detailed"])
async def test_the_whole_reasoning_stands_for_every_summary(summary: str) -> None:
    answer = await ask(chatting(answering(THOUGHT + "Hello")), reasoning={"summary": summary})
    assert answer["reasoning"] == {"effort": None, "summary": summary}
    assert (answer["output"][0]["summary"], item_text(answer["output"][0]).strip()) == ([], "hm")


async def test_calls_are_items() -> None:
    first, second = (await ask(chatting(answering(CALL + "\n" + CALL)), tools=[TOOL]))["output"]
    for call in (first, second):
        assert (call["type"], call["name"], call["status"]) == ("function_call", "add", "completed")
        assert call["arguments"].replace(" ", "") == '{"a":1}'
    assert first["call_id"] != second["call_id"]


async def test_a_call_that_a_stop_string_has_cut_is_incomplete() -> None:
    first, second = (await ask(chatting(answering(CALL + "\n" + CALL[:-20])), tools=[TOOL]))["output"]
    assert (first["status"], second["status"]) == ("completed", "incomplete")


async def test_a_call_with_malformed_arguments_is_incomplete_and_the_text_behind_it_is_complete() -> None:
    text = CALL.replace("1", "1, b")
    broken, rest = (await ask(chatting(answering(text)), tools=[TOOL]))["output"]
    assert (broken["type"], broken["status"]) == ("function_call", "incomplete")
    assert (rest["type"], rest["status"]) == ("message", "completed")


async def test_each_malformed_call_is_incomplete() -> None:
    text = CALL.replace("1", "1, b")
    output = (await ask(chatting(answering(f"{text}{CALL}{text}")), tools=[TOOL]))["output"]
    calls = [item["status"] for item in output if item["type"] == "function_call"]
    assert calls == ["incomplete", "completed", "incomplete"]


async def test_an_unreadable_call_is_text() -> None:
    (message,) = (await ask(chatting(answering("<tool_call>{oh")), tools=[TOOL]))["output"]
    assert item_text(message) == "<tool_call>{oh"


async def test_an_answer_that_was_cut_is_incomplete() -> None:
    answer = await ask(chatting(answering("Hello", FinishReason.LENGTH)), max_output_tokens=5)
    assert (answer["status"], answer["completed_at"]) == ("incomplete", None)
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["output"][0]["status"] == "incomplete"
    events = events_of((await post(app_of(chatting(answering("H", FinishReason.LENGTH))), PATH, STREAM)).content)
    assert events[-1]["type"] == "response.incomplete"


STREAM = {"input": "Hi", "stream": True}


@pytest.mark.parametrize("asked", [{"include": ["message.output_text.logprobs"]}, {"top_logprobs": 1}])
async def test_only_the_message_has_log_probabilities(asked: dict[str, Any]) -> None:
    engine = chatting(answering(THOUGHT + "Hey"))
    _, message = (await ask(engine, **asked))["output"]
    assert engine.generations[0].request.logprobs == asked.get("top_logprobs", 0)
    told = message["content"][0]["logprobs"]
    assert [(token["token"], token["logprob"], token["bytes"]) for token in told] == [
        (letter, -0.5, [ord(letter)]) for letter in "Hey"
    ]
    events = events_of((await post(app_of(engine), PATH, {**STREAM, **asked})).content)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [token for delta in deltas for token in delta["logprobs"]] == told


@pytest.mark.parametrize("strict", [None, True, False])
async def test_a_schema_binds_the_answer(strict: bool | None) -> None:
    engine = chatting(answering("{}"))
    text = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": strict}
    answer = await ask(engine, text={"format": text, "verbosity": "low"})
    grammar = engine.generations[0].request.grammar
    assert grammar is not None
    assert grammar.kind in {GrammarKind.JSON_SCHEMA, GrammarKind.LARK}
    assert ("lenient" in grammar.source) is bool(strict)
    assert answer["text"] == {"format": {**text, "strict": bool(strict)}, "verbosity": "low"}


async def test_the_response_repeats_the_tools_as_understood() -> None:
    choice = {"type": "function", "name": "add"}
    answer = await ask(chatting(answering(CALL)), tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
    assert answer["tools"] == [{**TOOL, "description": None, "strict": False}]
    assert (answer["tool_choice"], answer["parallel_tool_calls"]) == (choice, False)


async def test_only_allowed_tools_are_offered() -> None:
    engine = chatting(answering("x"))
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]}
    answer = await ask(engine, tools=[TOOL, {**TOOL, "name": "other"}], tool_choice=allowed)
    (prompt,) = engine.generations[0].request.prompts
    assert isinstance(prompt, str)
    assert prompt.startswith("<tool>add<|im_start|>")
    assert answer["tool_choice"] == allowed


async def test_previous_response_id_continues_a_conversation() -> None:
    engine = chatting(answering(THOUGHT + CALL))
    app = app_of(engine)
    first = (await post(app, PATH, {"input": "Hi", "tools": [TOOL], "instructions": "Be."})).json
    engine.script = answering("two")
    call_id = first["output"][-1]["call_id"]
    result = {"type": "function_call_output", "call_id": call_id, "output": "2"}
    second = (await post(app, PATH, {"input": [result], "previous_response_id": first["id"]})).json
    third = await post(app, PATH, {"input": "Bye", "previous_response_id": second["id"]})
    assert third.status == 200
    (prompt,) = engine.generations[-1].request.prompts
    thought = item_text(first["output"][0])
    assert prompt == (
        "<|im_start|>user\nHi<|im_end|>\n"
        f"<|im_start|>assistant\n<think>{thought}</think>"
        '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
        "<|im_end|>\n<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n"
        "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_output_items_can_be_sent_again_or_referenced() -> None:
    engine = chatting(answering("Hello"))
    app = app_of(engine)
    first = (await post(app, PATH, {"input": "Hi"})).json
    again = [{"role": "user", "content": "Hi"}, *first["output"], {"role": "user", "content": "Bye"}]
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    for items in (again, [again[0], reference, again[2]]):
        assert (await post(app, PATH, {"input": items})).status == 200
    assert engine.generations[1].request.prompts == engine.generations[2].request.prompts


async def test_reasoning_that_a_client_sends_back_encoded_is_in_the_prompt() -> None:
    """The AI SDK and others that store no responses ask for `encrypted_content`, and send only that back."""
    engine = chatting(answering(f"{THOUGHT}{CALL}"))
    app = app_of(engine)
    asked = {"include": ["reasoning.encrypted_content"], "store": False}
    fields = {**asked, "input": "Hi", "tools": [TOOL]}
    (thought, call) = (await post(app, PATH, fields)).json["output"]
    events = events_of((await post(app, PATH, {**fields, "stream": True})).content)
    began, ended = (event["item"] for event in events if event.get("output_index") == 0 and "item" in event)
    assert "encrypted_content" not in began
    assert ended["encrypted_content"] == thought["encrypted_content"]
    del thought["content"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "2"}
    await post(app, PATH, {**asked, "input": [{"role": "user", "content": "Hi"}, thought, call, result]})
    assert "<think>hm</think>" in str(engine.generations[-1].request.prompts[0])


async def test_reasoning_is_encoded_only_if_a_client_asks_for_it() -> None:
    thought, _ = (await ask(chatting(answering(THOUGHT + "Hello"))))["output"]
    assert "encrypted_content" not in thought


async def test_reasoning_that_a_client_sends_back_without_its_text_is_that_of_its_id() -> None:
    """LangChain's stream of responses has no texts of reasoning."""
    engine = chatting(answering(f"{THOUGHT}{CALL}"))
    app = app_of(engine)
    first = (await post(app, PATH, {"input": "Hi", "tools": [TOOL]})).json
    thought, call = first["output"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "2"}
    for sent in (thought, {**thought, "content": [], "status": "in_progress"}):
        items = [{"role": "user", "content": "Hi"}, sent, call, result]
        assert (await post(app, PATH, {"input": items})).status == 200
    assert engine.generations[1].request.prompts == engine.generations[2].request.prompts
    assert "<think>hm</think>" in str(engine.generations[2].request.prompts[0])


async def test_an_input_of_unknown_reasoning_without_a_text_is_none() -> None:
    reply = await post(app_of(chatting(answering("Hello"))), PATH, {"input": [{"type": "reasoning", "id": "rs_1"}]})
    assert (reply.status, reply.json["error"]["code"]) == (400, "missing_required_parameter")


async def test_a_small_body_cannot_refer_to_more_than_a_body_may_hold() -> None:
    engine = chatting(answering("Hello"))
    app = app_of(engine, body_limit=1000)
    ids = ["rs_0", "rs_1", "rs_2"]
    for name in ids:
        thought = {"type": "reasoning", "id": name, "content": [{"type": "reasoning_text", "text": "x" * 400}]}
        assert (await post(app, PATH, {"input": [thought]})).status == 200
    for names_given, *problem in (
        (ids[:1] * 2, "input[1].id", "invalid_value"),
        (ids, "input", "context_length_exceeded"),
    ):
        reply = await post(app, PATH, {"input": [{"id": name} for name in names_given]})
        assert reply.status == 400
        assert [reply.json["error"]["param"], reply.json["error"]["code"]] == problem
    assert len(engine.generations) == 3


async def test_a_history_cannot_be_larger_than_a_body_may_be() -> None:
    app = app_of(chatting(answering("Hello")), body_limit=1000)
    fields: dict[str, Any] = {"input": "x" * 600}
    for _ in range(2):
        fields["previous_response_id"] = (await post(app, PATH, fields)).json["id"]
    reply = await post(app, PATH, fields)
    assert (reply.status, reply.json["error"]["param"]) == (400, "previous_response_id")
    assert reply.json["error"]["code"] == "context_length_exceeded"


async def test_the_metadata_of_a_client_is_accepted_also_by_a_strict_server() -> None:
    fields = {"input": "Hi", "client_metadata": {"session_id": "1", "x-codex-turn-metadata": "{}"}}
    reply = await post(app_of(chatting(answering("x")), strict_fields=True), PATH, fields)
    assert (reply.status, reply.header("x-llama-gateway-ignored")) == (200, None)


async def test_breakpoints_of_the_cache_are_known() -> None:
    marked = {"type": "input_text", "text": "Hi", "prompt_cache_breakpoint": {"mode": "explicit"}}
    fields = {"input": [{"role": "user", "content": [marked]}]}
    reply = await post(app_of(chatting(answering("x")), strict_fields=True), PATH, fields)
    assert (reply.status, reply.header("x-llama-gateway-ignored")) == (200, None)


async def test_phases_of_messages_are_stored() -> None:
    phases = ["commentary", None, "final_answer"]
    app = app_of(chatting(answering("x")), strict_fields=True)
    said = [{"role": "assistant", "content": "Hi", "phase": phase} for phase in phases]
    reply = await post(app, PATH, {"input": [*said, {"role": "user", "content": "Go on."}]})
    listed = (await get(app, f"{PATH}/{reply.json['id']}/input_items")).json
    assert [item.get("phase") for item in listed["data"]] == [None, *reversed(phases)]


UNSUPPORTED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"context_management": [{"type": "compaction"}]}, "context_management"),
    ({"moderation": {"model": "m"}}, "moderation"),
    ({"truncation": "always"}, "truncation"),
    ({"reasoning": {"summary": "none"}}, "reasoning.summary"),
    ({"tools": [TOOL, {"type": "file_search"}]}, "tools[1]"),
    ({"tools": [{"type": "custom"}]}, "tools[0].name"),
    ({"tools": [{"type": "custom", "name": "c", "defer_loading": True}]}, "tools[0].defer_loading"),
    ({"tools": [{"type": "custom", "name": "c"}], "tool_choice": {"type": "function", "name": "c"}}, "tool_choice"),
    ({"tools": [{**TOOL, "defer_loading": True}]}, "tools[0].defer_loading"),
    ({"tools": [TOOL], "tool_choice": {"type": "web_search_preview"}}, "tool_choice.type"),
    ({"background": True, "stream": True}, "background"),
    ({"background": True, "store": False}, "background"),
]
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"input": 5}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"include": ["nonsense"]}, "include[0]"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "json_object"}}, "guided_regex": "a"}, "guided_regex"),
    ({"response_format": {"type": "json_object"}, "grammar": 'start: "a"'}, "grammar"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
    ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
    ({"stream_options": {}}, "stream_options"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
]


@pytest.mark.parametrize(("fields", "param"), [*UNSUPPORTED, *WRONG])
async def test_an_unsupported_field_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    named, _, message = await refused(**fields)
    assert named == param
    assert message.startswith(f"{param}: ")


@pytest.mark.parametrize("given", [None, [], [{"type": "reasoning", "summary": []}]])
async def test_input_is_required(given: object) -> None:
    param, code, _ = await refused(input=given)
    assert (param, code) == ("input", "missing_required_parameter")


async def test_an_unknown_previous_response_is_refused() -> None:
    param, code, message = await refused(previous_response_id="resp_x")
    assert (param, code) == ("previous_response_id", "previous_response_not_found")
    assert message == "Previous response with id 'resp_x' not found."


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"a": schema}
    return schema


@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_that_is_nested_too_deeply_to_repeat_is_refused(stream: bool) -> None:
    app = app_of(chatting(answering("x")))
    statuses = []
    for depth in range(50, 70):
        fields = {"input": "Hi", "stream": stream, "tools": [{**TOOL, "parameters": nested(depth)}]}
        reply = await post(app, PATH, json.dumps(fields).encode())
        statuses.append(reply.status)
        assert reply.complete
    assert statuses == sorted(statuses)
    assert set(statuses) == {200, 400}


@pytest.mark.parametrize(
    ("engines", "ours"),
    [
        ("prompt", "input"),
        ("max_tokens", "max_output_tokens"),
        ("logprobs", "top_logprobs"),
        ("grammar", "text.format"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_of_the_engine_names_the_field_that_was_sent(engines: str, ours: str, stream: bool) -> None:
    engine = chatting(answering("x"))
    engine.refusal = RequestError("No.", code="too_much", param=engines)
    fields = {"input": "Hi", "stream": stream, "text": {"format": {"type": "json_object"}}}
    reply = await post(app_of(engine), PATH, fields)
    assert (reply.status, reply.json["error"]["param"]) == (400, ours)


async def test_a_model_without_a_template_cannot_converse() -> None:
    reply = await post(app_of(FakeEngine()), PATH, {"input": "Hi"})
    error = reply.json["error"]
    assert (reply.status, error["param"], error["code"]) == (400, "input", "chat_template_missing")


async def test_a_failure_in_a_stream_is_reported_and_stored() -> None:
    engine = chatting(lambda generation: generation.put(Text(0, "a")))
    app = app_of(engine)
    async with AsgiCall(app, PATH, b'{"input":"Hi","stream":true}').running() as call:
        await call.sent(1)
        engine.generations[0].fail(EngineFault("Dead.", code="engine_died"))
    *_, failed, error = events_of(call.content)
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": "Dead."}
    assert item_text(failed["response"]["output"][0]) == "a"
    assert (error["type"], error["code"], error["message"]) == ("error", "engine_died", "Dead.")
    assert error["error"]["message"] == "Dead."
    stored = (await get(app, f"{PATH}/{failed['response']['id']}")).json
    assert stored == failed["response"]
    follow = await post(app, PATH, {"input": "Hi", "previous_response_id": stored["id"]})
    assert (follow.status, follow.json["error"]["code"]) == (400, "previous_response_not_completed")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_hang_up_cancels_the_response_and_does_not_store_it(stream: bool) -> None:
    engine = chatting(lambda generation: generation.put(Text(0, "a")) if stream else None)
    app = app_of(engine)
    async with AsgiCall(app, PATH, b'{"input":"Hi","stream":%b}' % (b"true" if stream else b"false")).running() as call:
        await (call.sent(1) if stream else engine.first())
        call.hang_up()
    assert engine.generations[0].left == "client closed the connection"
    if stream:
        created = events_of(call.content)[0]["response"]["id"]
        assert (await get(app, f"{PATH}/{created}")).status == 404


async def test_input_tokens_are_counted_without_a_generation() -> None:
    engine = chatting(answering("x"))
    app = app_of(engine)
    counted = (await post(app, f"{PATH}/input_tokens", {"input": "Hi"})).json
    (prompt,) = engine.tokenized[0][0]
    assert isinstance(prompt, str)
    assert counted == {"object": "response.input_tokens", "input_tokens": len(prompt) + 1}
    await post(app, PATH, {"input": "Hi"})
    assert engine.generations[0].request.prompts == (prompt,)
