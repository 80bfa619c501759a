"""The ingress of a cluster reads what a response continues, and does not disturb it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio.lowlevel
import orjson
import pytest
from starlette.types import ASGIApp

from gateway.apis.openai.shared_store.opening import open_histories, open_shared_stores
from gateway.apis.openai.stores import Bounds
from gateway.app import Equipment
from gateway.cluster.ingress.reading import PromptReader
from gateway.middleware.caller import NO_CREDENTIALS, Caller, with_caller
from gateway.routing.blocks import Blocks
from gateway.serving.prefixes import blocks_of
from gateway.stores import OpenStores
from tests.backends import ON_ASYNCIO
from tests.gateway.apis.openai.responses.asking import PATH, answering, chatting
from tests.gateway.apis.openai.stores.bench import SharedBench
from tests.gateway.application import NAME, gateway_of, settings_for
from tests.gateway.asgi import get, post
from tests.gateway.fake_engine import FakeEngine

pytestmark = [pytest.mark.anyio, ON_ASYNCIO]

BOUNDS = Bounds(100, 10**7, 10**6)
SECRET = b"sixteen letters.."
TEXT = "Once upon a time. " * 50


class Ingress:
    """A reader of prompts, and the gateway of a replica."""

    def __init__(self, reader: PromptReader, engine: FakeEngine, app: ASGIApp) -> None:
        self._reader = reader
        self._engine = engine
        self.app = app

    async def blocks(self, body: object, owner: str = NO_CREDENTIALS) -> Blocks:
        """Return the blocks of a request as the reader sees them."""
        caller = Caller(request_id="r", credentials=owner)
        scope = {"type": "http", "method": "POST", "path": PATH, "headers": [], "query_string": b""}
        return await self._reader.blocks(NAME, with_caller(scope, caller), orjson.dumps(body))

    @property
    def last(self) -> Blocks:
        """Blocks of the last request that has come to the engine."""
        (blocks,) = blocks_of(self._engine.generations[-1].request, NAME, SECRET)
        return blocks


@pytest.fixture
async def ingress(url: str) -> AsyncIterator[Ingress]:
    async with opened(url) as one:
        yield one


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Ingress]:
    engine = chatting(answering("Hello"))
    stores = await open_shared_stores(url, BOUNDS)
    SharedBench(url).rows("TRUNCATE stored_entries, stored_owners, stored_running, stored_gateways CASCADE")
    gateway = gateway_of(engine, equipment=Equipment(stores=OpenStores(responses=stores)))
    reader = PromptReader(settings_for(), SECRET, stores=await open_histories(url, BOUNDS, 5.0))
    assert engine.model is not None
    reader.describe(NAME, engine.model)
    async with stores.open(), gateway.background.open(), reader.open():
        yield Ingress(reader, engine, gateway.app)


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"background": True}, {"store": False}], ids=str)
async def test_the_prompt_after_a_stored_response_is_that_of_the_replica(ingress: Ingress, fields: Any) -> None:
    first = (await post(ingress.app, PATH, {"input": TEXT})).json
    body = {"input": "And?", "previous_response_id": first["id"], **fields}
    read = await ingress.blocks(body)
    assert (await post(ingress.app, PATH, body)).status == 200
    assert len(read) > 2
    assert read == ingress.last


@pytest.mark.parametrize("fields", [{}, {"background": True}, {"store": False}], ids=str)
async def test_the_prompt_in_a_conversation_is_that_of_the_replica(ingress: Ingress, fields: Any) -> None:
    conversation = (await post(ingress.app, "/v1/conversations", {})).json["id"]
    for turn in (TEXT, "And?"):
        body = {"input": turn, "conversation": conversation, **fields}
        read = [await ingress.blocks(body) for _ in range(2)]
        made = (await post(ingress.app, PATH, body)).json
        while (await get(ingress.app, f"{PATH}/{made['id']}")).json.get("status") in {"queued", "in_progress"}:
            await anyio.lowlevel.checkpoint()
        assert read == [ingress.last] * 2


async def test_a_conversation_with_a_turn_can_be_read(ingress: Ingress, url: str) -> None:
    conversation = (await post(ingress.app, "/v1/conversations", {})).json["id"]
    stores = await open_shared_stores(url, BOUNDS)
    async with stores.open():
        turn, _ = await stores.conversations.begin(NO_CREDENTIALS, conversation)
        body = {"input": TEXT, "conversation": conversation}
        assert len(await ingress.blocks(body)) > 2
        await turn.cancel()


async def test_what_another_owner_has_stored_is_not_read(ingress: Ingress) -> None:
    first = (await post(ingress.app, PATH, {"input": TEXT})).json
    body = {"input": "And?", "previous_response_id": first["id"]}
    assert await ingress.blocks(body)
    assert await ingress.blocks(body, owner="another") == ()
