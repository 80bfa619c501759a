"""The ingress reads the prompts that the replicas' engines get."""

from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest
from starlette.types import Scope

from engine import ModelInfo
from gateway.app import Equipment
from gateway.chat.conversation import ChatPrompt
from gateway.cluster.ingress.reading import GENERATING, PromptReader
from gateway.keys.ring import KeyRing
from gateway.middleware.caller import Caller, with_caller
from gateway.preparation.preparer import InlinePreparer
from gateway.routing.blocks import Blocks
from gateway.serving.prefixes import blocks_of
from gateway.stores import OpenStores
from tests.gateway.application import NAME, apis, gateway_of, settings_for
from tests.gateway.asgi import AsgiCall
from tests.gateway.fake_engine import MODEL, FakeEngine

pytestmark = pytest.mark.anyio

SECRET = b"sixteen letters.."
KEY = "sk-a"
TEXT = "Once upon a time. " * 50
MESSAGES = [{"role": "system", "content": TEXT}, {"role": "user", "content": "Hi"}]
TEMPLATE = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}[assistant]"
DESCRIPTION = replace(MODEL, chat_template=TEMPLATE)
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/chat/completions": {"messages": MESSAGES, "stream": True},
    "/v1/completions": {"prompt": ["short", TEXT]},
    "/v1/responses": {"input": TEXT, "stream": True, "cache_salt": "mine"},
    "/responses": {"input": TEXT, "instructions": "Be kind."},
    "/v1/messages": {"model": NAME, "max_tokens": 9, "system": TEXT, "messages": MESSAGES[1:], "stream": True},
    "/api/chat": {"model": NAME, "messages": MESSAGES},
    "/api/generate": {"model": NAME, "prompt": TEXT, "system": "Be kind."},
    "/generate": {"prompt": TEXT},
}


def reader_of(preparer: InlinePreparer | None = None, description: ModelInfo | None = DESCRIPTION) -> PromptReader:
    reader = PromptReader(settings_for(partition_cache=True), SECRET, preparer)
    if description is not None:
        reader.describe(NAME, description)
    return reader


def scope_of(path: str, method: str = "POST", models: frozenset[str] | None = None) -> Scope:
    key = KeyRing([KEY]).find(KEY)
    assert key is not None
    caller = Caller(request_id="r", cache_partition="whole").identified(replace(key, models=models))
    return with_caller({"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}, caller)


async def read(path: str, body: object, reader: PromptReader | None = None, **scope: Any) -> Blocks:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    reader = reader or reader_of()
    async with reader.open():
        return await reader.blocks(NAME, scope_of(path, **scope), data)


@pytest.mark.parametrize("path", BODIES)
async def test_a_prompt_has_the_blocks_that_the_replica_reports(path: str) -> None:
    engine = FakeEngine()
    engine.model = DESCRIPTION
    gateway = gateway_of(engine, equipment=Equipment(stores=OpenStores(keys=KeyRing([KEY]))), partition_cache=True)
    call = AsgiCall(gateway.app, path, orjson.dumps(BODIES[path]), headers={"authorization": f"Bearer {KEY}"})
    assert (await call.run()).status == 200, call.content
    expected = max(blocks_of(engine.generations[-1].request, NAME, SECRET), key=len)
    assert len(expected) > 2
    assert await read(path, BODIES[path]) == expected


def test_all_paths_exist_and_are_tested() -> None:
    assert {endpoint.path for api in apis() for endpoint in api.endpoints} >= GENERATING == BODIES.keys()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", b"{"),
        ("/v1/completions", {"prompt": 5}),
        ("/v1/completions", {"prompt": TEXT, "cache_prompt": False}),
        ("/v1/completions", {"prompt": TEXT, "model": "unknown"}),
        ("/v1/responses", {"input": TEXT, "previous_response_id": "resp_1"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
        ("/v1/embeddings", {"input": TEXT}),
        ("/completion", {"prompt": TEXT}),
        ("/unknown", {}),
    ],
)
async def test_a_request_without_a_prompt_that_can_be_read_has_no_blocks(path: str, body: object) -> None:
    assert await read(path, body) == ()


async def test_a_background_response_has_the_blocks_of_another() -> None:
    body = BODIES["/v1/responses"]
    assert await read("/v1/responses", {**body, "stream": False, "background": True}) == await read(
        "/v1/responses", body
    )


async def test_a_key_of_another_model_has_no_blocks() -> None:
    assert await read("/v1/completions", {"prompt": TEXT}, models=frozenset({NAME})) != ()
    assert await read("/v1/completions", {"prompt": TEXT}, models=frozenset({"other"})) == ()


async def test_without_a_description_of_the_model_there_are_no_blocks() -> None:
    assert await read("/v1/completions", {"prompt": TEXT}, reader_of(description=None)) == ()
    assert await read("/v1/completions", {"prompt": TEXT}, method="GET") == ()


async def test_a_prompt_that_takes_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(InlinePreparer):
        async def render(self, *_arguments: object) -> ChatPrompt:
            await anyio.sleep_forever()
            raise AssertionError

    monkeypatch.setattr("gateway.cluster.ingress.reading.TIMEOUT", 0.01)
    assert await read("/v1/chat/completions", BODIES["/v1/chat/completions"], reader_of(Slow())) == ()


async def test_few_large_bodies_are_read_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = 0, anyio.Event()

    class Held(InlinePreparer):
        async def render(self, *arguments: Any) -> ChatPrompt:
            nonlocal reading
            reading += 1
            await go_on.wait()
            return await super().render(*arguments)

    monkeypatch.setattr("gateway.cluster.ingress.reading.TIMEOUT", 20)
    path, reader, found = "/v1/chat/completions", reader_of(Held()), []

    async def read_one(length: int) -> None:
        found.append(await read(path, {"messages": [{"role": "user", "content": "a" * length}]}, reader))

    async with anyio.create_task_group() as tasks:
        for length in (100_000, 1000, 100_000):
            tasks.start_soon(read_one, length)
        while reading < 3:
            await anyio.lowlevel.checkpoint()
        await read_one(100_000)
        assert found == [()]
        go_on.set()
    assert len(list(filter(None, found))) == 3


async def test_a_defect_does_not_fail_the_request(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(InlinePreparer):
        async def render(self, *_arguments: object) -> ChatPrompt:
            raise ZeroDivisionError

    assert await read("/v1/chat/completions", BODIES["/v1/chat/completions"], reader_of(Broken())) == ()
    assert "cannot be read" in caplog.text
