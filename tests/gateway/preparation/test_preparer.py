"""Every implementation of a preparer: the same values, reports and errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import UnionType
from typing import Any, get_origin

import anyio
import orjson
import pytest
from typing_extensions import override

from engine import Busy, RequestError
from gateway.apis.endpoint import AnyEndpoint, has_body, prepared_type
from gateway.apis.openai.completions.call import CompletionCall
from gateway.chat.conversation import Conversation
from gateway.chat.rendering import encode_conversation, render
from gateway.chat.template_key import template_key
from gateway.middleware.caller import Caller
from gateway.preparation import jobs, pooled
from gateway.preparation.codec import decode, encode
from gateway.preparation.jobs import modules_of
from gateway.preparation.pooled import INLINE_BODY, PooledPreparer
from gateway.preparation.preparer import InlinePreparer, Preparer
from gateway.preparation.stages import prepare
from gateway.preparation.workers.messages import Job
from gateway.preparation.workers.pool import WorkerPool
from tests.gateway.application import apis
from tests.gateway.chat import templates
from tests.gateway.fake_engine import MODEL

MESSAGES = [
    {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "1"},
]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}}}}
CHAT = {
    "messages": MESSAGES,
    "tools": [TOOL],
    "n": 2,
    "stop": ["a"],
    "logit_bias": {"5": 1},
    "response_format": {"type": "json_object"},
    "prediction": {"type": "content", "content": "Hi"},
    "chat_template_kwargs": {"a": [1, 2.5, None, {"b": True}]},
    "samplers": ["top_k"],
    "seed": 2**63,
}
BODIES: dict[str, list[Any]] = {
    "createChatCompletion": [CHAT, {"messages": MESSAGES[1:2]}],
    "countChatTokens": [CHAT],
    "applyTemplate": [CHAT],
    "controlChatCompletion": [{"id": "chatcmpl-1", "action": "reasoning_end", "model": "a"}],
    "createMessage": [
        {
            "model": "a",
            "max_tokens": 9,
            "messages": MESSAGES[1:2],
            "thinking": {"type": "enabled", "budget_tokens": 5},
            "unknown": 1,
        }
    ],
    "countMessageTokens": [{"model": "a", "messages": MESSAGES[1:2]}],
    "createCompletion": [{"prompt": ["a", [1, 2]], "logprobs": 1}, {"prompt": "a", "suffix": "b"}],
    "createResponse": [{"input": "Hi", "instructions": "Be kind.", "stream": True, "conversation": "conv_1"}],
    "createConversation": [{"metadata": {"a": "b"}, "items": [{"role": "user", "content": "Hi"}, {"id": "msg_1"}]}, {}],
    "updateConversation": [{"metadata": {"a": "b"}}],
    "createConversationItems": [{"items": [{"role": "user", "content": "Hi"}]}],
    "getinputtokencounts": [{"input": [{"role": "user", "content": "Hi"}]}],
    "createEmbedding": [{"input": "a"}, {"input": [[1], [2]], "dimensions": 2, "encoding_format": "base64"}],
    "ollamaChat": [{"model": "a", "messages": MESSAGES[1:2], "format": "json"}, {"model": "a"}],
    "ollamaGenerate": [{"model": "a", "prompt": "b"}, {"model": "a", "prompt": "b", "raw": True}, {"model": "a"}],
    "ollamaEmbed": [{"model": "a", "input": ["b", "c"]}],
    "ollamaEmbeddings": [{"model": "a", "prompt": "b", "keep_alive": "5m"}],
    "ollamaShow": [{"model": "a"}],
    "ollamaPull": [{"model": "hf.co/a/b:Q8_0", "stream": False}, {"name": "a/b"}],
    "ollamaDelete": [{"model": "a"}],
    "rerank": [{"query": "a", "documents": ["b", {"text": "c"}]}],
    "v1_rerank": [{"query": "a", "texts": ["b"], "raw_scores": True}],
    "reranking": [{"query": "a", "documents": ["b"], "top_n": 1}],
    "v1_reranking": [{"query": "a", "documents": ["b"], "truncate": True}],
    "v2_rerank": [{"query": "a", "documents": ["b"], "max_tokens_per_doc": 9}],
    "createChatCompletionUnversioned": [CHAT],
    "countChatTokensUnversioned": [CHAT],
    "createResponseUnversioned": [{"input": "Hi"}],
    "getinputtokencountsUnversioned": [{"input": "Hi"}],
    "createNativeCompletion": [
        {"prompt": ["a", [1, 2]], "logit_bias": [["a", False], [1, 2]], "n_probs": 1},
        {"prompt": [1, "a"], "response_fields": ["content"], "samplers": "kt"},
    ],
    "createNativeCompletions": [{"prompt": "a"}],
    "createNativeEmbedding": [{"input": ["a", [1, "b"]]}, {"content": "a"}],
    "createNativeEmbeddings": [{"input": "a"}],
    "createInfill": [{"input_prefix": "a", "input_suffix": "b"}],
    "setProps": [{}],
    "keepSlot": [{"filename": "a.bin"}],
    "lookUpStreams": [{"conversation_ids": ["a"]}],
    "generate": [{"prompt": "a"}, {"prompt": [1], "grammar": 'root ::= "a"'}],
    "tokenize": [{"content": "a", "with_pieces": True}],
    "detokenize": [{"tokens": [1, 2]}],
    "loadModel": [{"model": "a"}],
    "setLoraAdapters": [[{"id": 0, "scale": 0.5}]],
    "unloadModel": [{"model": "a"}],
}
ENDPOINTS = {endpoint.id: endpoint for api in apis() for endpoint in api.endpoints if has_body(endpoint)}


@pytest.mark.parametrize("name", BODIES)
def test_what_an_endpoint_prepares_can_cross_between_processes(name: str) -> None:
    endpoint = ENDPOINTS[name]
    for body in BODIES[name]:
        prepared = prepare(endpoint.body, endpoint.prepare, orjson.dumps(body)).value
        expected = prepared_type(endpoint)
        kind = expected if isinstance(expected, UnionType) else get_origin(expected) or expected
        assert isinstance(prepared, kind)
        assert decode(encode(prepared), prepared_type(endpoint)) == prepared


@pytest.mark.parametrize("endpoint", ENDPOINTS.values(), ids=lambda endpoint: endpoint.id)
def test_another_process_can_find_the_function_of_an_endpoint(endpoint: AnyEndpoint) -> None:
    function = endpoint.prepare
    assert "<" not in function.__qualname__
    assert "." not in function.__qualname__


def test_every_endpoint_with_a_body_is_tested() -> None:
    assert BODIES.keys() == ENDPOINTS.keys()


def caller() -> Caller:
    return Caller(request_id="req_1")


@asynccontextmanager
async def opened(kind: str, *, strict: bool = False) -> AsyncIterator[Preparer]:
    """Open a preparer. The pooled one reads every body in a worker."""
    if kind == "inline":
        yield InlinePreparer(strict=strict)
        return
    pool = WorkerPool()
    async with pool.open(modules_of(ENDPOINTS.values())):
        yield PooledPreparer(pool, strict=strict, inline_body=-1)


@pytest.fixture(params=["inline", "pooled"])
async def preparer(request: pytest.FixtureRequest) -> AsyncIterator[Preparer]:
    async with opened(request.param) as made:
        yield made


@pytest.mark.anyio
async def test_a_body_is_prepared_and_its_unknown_fields_are_reported(preparer: Preparer) -> None:
    asked = caller()
    body = orjson.dumps({"prompt": "a", "zip": [[]] * 1000})
    prepared = await preparer.read(asked, ENDPOINTS["createCompletion"], {}, body)
    assert isinstance(prepared, CompletionCall)
    assert prepared.request.prompts == ("a",)
    assert asked.reply_headers == [(b"x-llama-gateway-ignored", b"zip")]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"[]", "invalid_type", None),
        (b"{}", "missing_required_parameter", "prompt"),
        (b'{"prompt": 5}', "invalid_type", "prompt"),
        (b'{"prompt": "a", "grammar": "a", "guided_regex": "b"}', "invalid_value", "guided_regex"),
        (b'{"prompt": "a", "x":' + b"[" * 100 + b"]" * 100 + b"}", "invalid_value", "x"),
        (b'{"prompt": "a", "x":' + b"[" * 5000 + b"]" * 5000 + b"}", "invalid_json", None),
    ],
)
async def test_an_invalid_body_is_a_request_error(
    preparer: Preparer, body: bytes, code: str, param: str | None
) -> None:
    with pytest.raises(RequestError) as caught:
        await preparer.read(caller(), ENDPOINTS["createCompletion"], {}, body)
    assert (caught.value.code, caught.value.param) == (code, param)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["inline", "pooled"])
async def test_unknown_fields_are_refused_in_strict_mode(kind: str) -> None:
    async with opened(kind, strict=True) as preparer:
        with pytest.raises(RequestError) as caught:
            await preparer.read(caller(), ENDPOINTS["createCompletion"], {}, b'{"prompt": "a", "zip": 1}')
    assert (caught.value.code, caught.value.param) == ("unknown_parameter", "zip")


@pytest.mark.anyio
async def test_a_conversation_is_rendered(preparer: Preparer) -> None:
    template = template_key(MODEL, templates.CHATML)
    conversation = encode_conversation(Conversation(messages=({"role": "user", "content": "Hi"},)))
    prompt = await preparer.render(caller(), template, conversation)
    assert prompt == render(template, conversation)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("source", "code"),
    [("{% if %}", "chat_template_invalid"), ("{{ raise_exception('No.') }}", "chat_template_refused")],
)
async def test_a_template_that_fails_is_a_request_error(preparer: Preparer, source: str, code: str) -> None:
    conversation = encode_conversation(Conversation(messages=({"role": "user", "content": "Hi"},)))
    with pytest.raises(RequestError) as caught:
        await preparer.render(caller(), template_key(MODEL, source), conversation)
    assert (caught.value.code, caught.value.param) == (code, "messages")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("source", "message"),
    [("{{ 10**(10**9) }}", "longer than"), ("{% if true %}" * 3000 + "{% endif %}" * 3000, "nested too deep")],
)
async def test_a_hostile_template_is_not_compiled_for_each_request(
    source: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_SECONDS", 0.5)
    monkeypatch.setattr(jobs, "_WAIT_FACTOR", 100)
    template = template_key(MODEL, source)
    async with opened("pooled") as preparer:
        for _ in range(2):
            with pytest.raises(RequestError, match=message):
                await preparer.check(template)
        monkeypatch.setattr(jobs, "_SECONDS", 0)  # it is not tried again
        with pytest.raises(RequestError, match=message):
            await preparer.render(caller(), template, b"")
        monkeypatch.setattr(jobs, "_SECONDS", 30)
        await preparer.check(template_key(MODEL, templates.CHATML))


class NotingPool(WorkerPool):
    """Notes the jobs, and runs none."""

    def __init__(self) -> None:
        super().__init__()
        self.run_jobs: list[Job] = []
        self.clients: list[str] = []
        self.warm_ups: list[Job] = []

    @override
    async def run(self, client: str, job: Job, payload: bytes) -> bytes:
        self.run_jobs.append(job)
        self.clients.append(client)
        return b""

    @override
    def warm_up(self, job: Job) -> None:
        self.warm_ups.append(job)


@pytest.mark.anyio
async def test_the_template_of_a_model_that_is_loaded_again_is_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled, "MOST_KEYS", 2)
    pool = NotingPool()
    preparer = PooledPreparer(pool)
    keys = [template_key(MODEL, templates.CHATML) for _ in range(5)]
    for key in keys:
        await preparer.check(key)
    assert len(pool.run_jobs) == 1
    assert len(preparer._by_identity) <= 2


class BrokenPool(NotingPool):
    """Compiles no template."""

    @override
    async def run(self, client: str, job: Job, payload: bytes) -> bytes:
        await super().run(client, job, payload)
        raise RequestError("It is broken.", code="chat_template_invalid")


@pytest.mark.anyio
async def test_a_template_that_cannot_be_compiled_is_tried_again_once_its_model_is_loaded_again() -> None:
    pool = BrokenPool()
    preparer = PooledPreparer(pool)
    for tries in (1, 2):
        key = template_key(MODEL, templates.CHATML)
        for _ in range(2):
            with pytest.raises(RequestError, match="It is broken"):
                await preparer.check(key)
        assert len(pool.run_jobs) == tries


@pytest.mark.anyio
async def test_bodies_and_conversations_take_the_turns_of_their_client() -> None:
    pool = BusyPool()
    pool.busy = False
    preparer, template = PooledPreparer(pool, inline_body=0), template_key(MODEL, templates.CHATML)
    await preparer.check(template)
    pool.busy = True
    one = replace(caller(), client="one")
    with pytest.raises(RequestError, match="took longer than"):
        await preparer.render(one, template, b"x")
    with pytest.raises(Busy):
        await preparer.read(one, ENDPOINTS["createCompletion"], {}, b'{"prompt": "a"}')
    assert pool.clients[1:] == ["one", "one"]
    assert pool.clients[0] != "one", "a template serves all clients"


@pytest.mark.anyio
async def test_known_templates_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled, "MOST_KEYS", 2)
    preparer = PooledPreparer(NotingPool())
    for number in range(5):
        await preparer.check(template_key(MODEL, f"{templates.CHATML}{number}"))
    assert len(preparer._templates) <= 2


class BusyPool(NotingPool):
    """Takes too long for each job while it is busy."""

    busy = True

    @override
    async def run(self, client: str, job: Job, payload: bytes) -> bytes:
        await super().run(client, job, payload)
        if self.busy:
            raise TimeoutError
        return b""


@pytest.mark.anyio
async def test_a_body_is_read_by_a_worker_only_if_it_is_large() -> None:
    pool = BusyPool()
    preparer, small = PooledPreparer(pool), b'{"prompt": "a"}'.ljust(INLINE_BODY)
    await preparer.read(caller(), ENDPOINTS["createCompletion"], {}, small)
    assert not pool.run_jobs
    with pytest.raises(Busy) as busy:
        await preparer.read(caller(), ENDPOINTS["createCompletion"], {}, small + b" ")
    assert (busy.value.code, len(pool.run_jobs)) == ("preparation_timeout", 1)


class WaitingPool(NotingPool):
    """Runs its jobs once a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = anyio.Event()

    @override
    async def run(self, client: str, job: Job, payload: bytes) -> bytes:
        await super().run(client, job, payload)
        await self.goes_on.wait()
        return b""


@pytest.mark.anyio
async def test_a_template_is_compiled_once_for_all_that_wait_for_it_and_by_each_new_worker() -> None:
    pool = WaitingPool()
    preparer, template = PooledPreparer(pool), template_key(MODEL, templates.CHATML)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(preparer.check, template)
        await anyio.wait_all_tasks_blocked()
        assert (len(pool.run_jobs), pool.warm_ups) == (1, [])
        pool.goes_on.set()
    assert pool.run_jobs == pool.warm_ups
    assert len(pool.run_jobs) == 1


@pytest.mark.anyio
async def test_a_worker_without_cpu_time_is_not_the_template_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    template = template_key(MODEL, templates.CHATML)
    async with opened("pooled") as preparer:
        monkeypatch.setattr(jobs, "_WAIT_FACTOR", 0)
        with pytest.raises(Busy) as busy:
            await preparer.check(template)
        assert busy.value.code == "preparation_timeout"
        monkeypatch.undo()
        await preparer.check(template)
        monkeypatch.setattr(jobs, "_WAIT_FACTOR", 0)
        with pytest.raises(Busy):
            await preparer.render(caller(), template, encode_conversation(Conversation(messages=())))


@pytest.mark.anyio
async def test_a_template_that_took_too_long_is_tried_again_ever_more_rarely() -> None:
    now = 0.0
    pool = BusyPool()
    preparer = PooledPreparer(pool, clock=lambda: now)
    template = template_key(MODEL, templates.CHATML)
    tried: list[float] = []
    while now < 2000:
        before = len(pool.run_jobs)
        with pytest.raises(RequestError, match="longer than 5 s") as caught:
            await preparer.check(template)
        assert caught.value.code == "chat_template_invalid"
        tried += [now] * (len(pool.run_jobs) - before)
        now += 5
    assert tried == [0, 10, 30, 70, 150, 310, 630, 1230, 1830]
    pool.busy, now = False, 2430
    for _ in range(2):
        await preparer.check(template)
    assert len(pool.run_jobs) == len(tried) + 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ 'x' * 10**10 }}", "MemoryError"),
        ("{{ 10 ** (10**9 * messages|length) if messages[0].content == 'Hi' }}", "longer than"),
        ("{% for i in range(50000) %}{{ 'x' * 200 }}{% endfor %}", "longer than 419[0-9]{4} bytes"),
    ],
)
async def test_a_template_has_limits_for_each_conversation(
    source: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_SECONDS", 2)
    monkeypatch.setattr(jobs, "_WAIT_FACTOR", 100)
    conversation = encode_conversation(Conversation(messages=({"role": "user", "content": "Hi"},)))
    async with opened("pooled") as preparer:
        with pytest.raises(RequestError, match=message):
            await preparer.render(caller(), template_key(MODEL, source), conversation)
        await preparer.render(caller(), template_key(MODEL, templates.CHATML), conversation)
