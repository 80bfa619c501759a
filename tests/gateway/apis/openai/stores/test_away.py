"""A database that is away, or whose answers are lost: clear refusals, and nothing is stored twice."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import orjson
import pytest
from starlette.types import ASGIApp
from typing_extensions import override

from engine import Finished, FinishReason, Text
from gateway.apis.openai.conversations.store import TurnEnd
from gateway.apis.openai.responses import background
from gateway.apis.openai.shared_store import conversations, presence, storage
from gateway.apis.openai.shared_store.conversations import SharedConversations
from gateway.apis.openai.shared_store.entries import lock
from gateway.apis.openai.shared_store.presence import Presence
from gateway.apis.openai.shared_store.responses import SharedResponses
from gateway.apis.openai.shared_store.storage import Storage
from gateway.apis.openai.stores import Bounds, Stores
from gateway.app import Equipment
from gateway.middleware.errors import RefusedError
from gateway.storage.database import Execute, StorageError, Work
from gateway.storage.postgres import PostgresDatabase
from gateway.stores import OpenStores
from tests.backends import ON_TRIO
from tests.gateway.apis.openai.responses.asking import PATH, answering, chatting
from tests.gateway.apis.openai.stores.bench import OWNER, SharedBench, created, found, ids, item, items, response
from tests.gateway.application import gateway_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine, FakeGeneration

pytestmark = [pytest.mark.anyio, ON_TRIO]  # for which psycopg has no connection of its own

T = TypeVar("T")
BOUNDS = Bounds(100, 10**7, 10**6)


class Flaky(PostgresDatabase):
    """A database that is away, or that does its work and loses the answer, as often as a test sets."""

    away = False
    lost = 0

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.answers = threading.Event()
        self.answers.set()
        self.refused = anyio.Event()

    @override
    async def read(self, work: Work[T]) -> T:
        def run(execute: Execute) -> T:
            self.answers.wait(20)
            return work(execute)

        if self.away:
            self.refused.set()
            raise StorageError("the database is away")
        result = await super().read(run)
        if self.lost:
            self.lost -= 1
            raise StorageError("the connection was lost")
        return result


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "RETRY_INTERVAL", 0.0)
    monkeypatch.setattr(presence, "POLL_INTERVAL", 0.01)
    monkeypatch.setattr(background, "PAUSE", 0.01)
    monkeypatch.setattr(background, "ATTEMPTS", 1000)


@asynccontextmanager
async def stores_on(url: str) -> AsyncIterator[tuple[Flaky, Stores]]:
    """Open stores on an empty database. Their lease has a connection of its own."""
    bench = SharedBench(url)
    await bench.open()
    database = Flaky(url)
    lease = Presence(Storage(Flaky(url)), BOUNDS, 0.3)
    shared = Storage(database)
    stores = Stores(SharedResponses(shared, lease, BOUNDS), SharedConversations(shared, lease, BOUNDS), lease.open)
    try:
        with anyio.fail_after(20):
            async with stores.open():
                yield database, stores
    finally:
        with anyio.CancelScope(shield=True):
            await database.close()
            await bench.close()


@asynccontextmanager
async def app_on(stores: Stores, engine: FakeEngine) -> AsyncIterator[ASGIApp]:
    gateway = gateway_of(engine, equipment=Equipment(stores=OpenStores(responses=stores)))
    async with gateway.background.open():
        yield gateway.app


def refusal(reply: AsgiCall) -> tuple[int, str, str | None]:
    return reply.status, reply.json["error"]["code"], reply.header("x-should-retry")


async def test_without_its_database_every_route_of_the_store_is_a_503(url: str) -> None:
    engine = chatting(answering("Hello"))
    async with stores_on(url) as (database, stores), app_on(stores, engine) as app:
        kept = (await post(app, PATH, {"input": "Hi"})).json["id"]
        conversation = (await post(app, "/v1/conversations", {})).json["id"]
        database.away = True
        await get(app, f"{PATH}/{kept}")
        asked: list[tuple[str, str, Any]] = [
            ("GET", f"{PATH}/{kept}", None),
            ("DELETE", f"{PATH}/{kept}", None),
            ("POST", f"{PATH}/{kept}/cancel", None),
            ("GET", f"{PATH}/{kept}/input_items", None),
            ("POST", PATH, {"input": "Hi"}),
            ("POST", PATH, {"input": "Hi", "stream": True}),
            ("POST", PATH, {"input": "Hi", "background": True}),
            ("POST", PATH, {"input": "Hi", "previous_response_id": kept, "store": False}),
            ("POST", PATH, {"input": "Hi", "conversation": conversation}),
            ("POST", "/v1/conversations", {}),
            ("GET", f"/v1/conversations/{conversation}", None),
            ("GET", f"/v1/conversations/{conversation}/items", None),
        ]
        for method, path, body in asked:
            reply = await (AsgiCall(app, path, method=method).run() if body is None else post(app, path, body))
            assert refusal(reply) == (503, "store_unavailable", "true"), (method, path, body)
        assert len(engine.generations) == 1, "nothing is computed that cannot be stored"
        assert (await post(app, PATH, {"input": "Hi", "store": False})).status == 200
        database.away = False
        assert (await get(app, f"{PATH}/{kept}")).status == 200


async def test_a_stream_that_cannot_be_stored_ends_with_an_error(url: str) -> None:
    def script(generation: FakeGeneration) -> None:
        generation.put(Text(0, "Hel", ()))

    engine = chatting(script)
    async with stores_on(url) as (database, stores), app_on(stores, engine) as app:
        async with AsgiCall(app, PATH, b'{"input":"Hi","stream":true}').running() as call:
            while b"Hel" not in call.content:
                await anyio.lowlevel.checkpoint()
            database.away = True
            engine.generations[0].put(Finished(0, "lo", FinishReason.STOP, 1, 0))
        failed, error = (
            orjson.loads(line[6:]) for line in call.content.splitlines()[-5:] if line.startswith(b"data: ")
        )
        assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
        assert (error["type"], error["code"]) == ("error", "store_unavailable")


async def test_a_background_response_waits_for_the_database_at_its_end(url: str) -> None:
    engine = chatting(lambda _generation: None)
    async with stores_on(url) as (database, stores), app_on(stores, engine) as app:
        conversation = (await post(app, "/v1/conversations", {})).json["id"]
        made = (await post(app, PATH, {"input": "Hi", "background": True, "conversation": conversation})).json
        database.away = True
        engine.generations[0].put(Finished(0, "Hello", FinishReason.STOP, 1, 0))
        await anyio.wait_all_tasks_blocked()
        database.away = False
        while (reply := (await get(app, f"{PATH}/{made['id']}")).json)["status"] != "completed":
            await anyio.lowlevel.checkpoint()
        assert reply["output"][0]["content"][0]["text"] == "Hello"
        kept = (await get(app, f"/v1/conversations/{conversation}/items")).json["data"]
        assert [item["role"] for item in kept] == ["assistant", "user"]


async def test_a_change_whose_answer_was_lost_is_made_once(url: str) -> None:
    async with stores_on(url) as (database, stores):
        database.lost = 1
        await stores.responses.put(OWNER, response("a", item("in_a")))
        assert await found(stores, "in_a", "out_a") == {"in_a": {"id": "in_a"}, "out_a": {"id": "out_a", "text": "x"}}
        database.lost = 1
        conversation = await created(stores, "a")
        database.lost = 1
        turn, _ = await stores.conversations.begin(OWNER, conversation)
        database.lost = 1
        await turn.end(items("b"))
        turn, _ = await stores.conversations.begin(OWNER, conversation)
        database.lost = 1
        await stores.responses.put(OWNER, response("b"), TurnEnd(turn, items("c")))
        assert await ids(stores, conversation) == ["a", "b", "c"]
        database.lost = 1
        await stores.responses.announce(OWNER, response("r", status="queued", background=True), lambda: None)
        database.lost = 1
        await stores.responses.put(OWNER, response("r", background=True))
        stores.responses.forget("r")
        assert (await stores.responses.get(OWNER, "r")).can_continue


async def test_a_turn_that_cannot_be_ended_now_ends_later(url: str) -> None:
    async with stores_on(url) as (_, stores):
        conversation = await created(stores, "a")
        turn, _ = await stores.conversations.begin(OWNER, conversation)
        lease = lease_of(stores)
        lease.away = True
        await lease.refused.wait()  # no beat from before is still at work
        await turn.cancel()
        assert turns(url) != [(None,)]
        lease.away = False
        while turns(url) != [(None,)]:
            await anyio.lowlevel.checkpoint()


async def test_a_response_is_not_stored_without_the_end_of_its_turn(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stores_on(url) as (_, stores):
        conversation = await created(stores, "a")
        turn, _ = await stores.conversations.begin(OWNER, conversation)
        end = TurnEnd(turn, items("b"))
        with monkeypatch.context() as failing:
            failing.setattr(conversations, "END", "SELECT 1 / 0 WHERE ? = ?")
            with pytest.raises(RefusedError, match="cannot be used"):
                await stores.responses.put(OWNER, response("r"), end)
        with pytest.raises(RefusedError, match="not found"):
            await stores.responses.get(OWNER, "r")
        assert turns(url) != [(None,)]
        await stores.responses.put(OWNER, response("r"), end)
        assert (turns(url), await ids(stores, conversation)) == ([(None,)], ["a", "b"])


async def test_an_abandoned_turn_that_is_cancelled_has_ended(url: str) -> None:
    async with stores_on(url) as (_, stores):
        conversation = await created(stores, "a")
        turn, _ = await stores.conversations.begin(OWNER, conversation)
        turn.abandon()
        await turn.end(items("b"))
        await turn.cancel()
        assert turns(url) == [(None,)]
        assert await ids(stores, conversation) == ["a"]


async def test_a_turn_whose_beginning_was_given_up_does_not_last(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stores_on(url) as (_, stores):
        conversation = await created(stores, "a")
        with slow_commits(url):
            with monkeypatch.context() as impatient:
                impatient.setattr(stores.responses._storage, "_patience", 0.1)  # type: ignore[attr-defined]
                with pytest.raises(RefusedError):
                    await stores.conversations.begin(OWNER, conversation)
            while SharedBench(url).rows("SELECT 1 FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'active'"):
                await anyio.lowlevel.checkpoint()
        while turns(url) != [(None,)]:
            await anyio.lowlevel.checkpoint()
        await (await stores.conversations.begin(OWNER, conversation))[0].cancel()


def lease_of(stores: Stores) -> Flaky:
    """Return the database of the lease."""
    database = stores.responses._presence._storage._database  # type: ignore[attr-defined]
    assert isinstance(database, Flaky)
    return database


def turns(url: str) -> list[Any]:
    return SharedBench(url).rows("SELECT turn FROM stored_conversations")


@contextmanager
def slow_commits(url: str) -> Iterator[None]:
    """Let transactions that change conversations wait before they are committed."""
    rows = SharedBench(url).rows
    rows(
        "CREATE OR REPLACE FUNCTION slow() RETURNS TRIGGER LANGUAGE plpgsql AS $$ "
        "BEGIN PERFORM pg_sleep(0.4); RETURN NULL; END $$"
    )
    rows(
        "CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON stored_conversations DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW WHEN (NEW.turn IS NOT NULL) EXECUTE FUNCTION slow()"
    )
    try:
        yield
    finally:
        rows("DROP TRIGGER slow ON stored_conversations")


async def test_a_change_that_was_made_is_no_error_because_its_answer_was_lost(url: str) -> None:
    async with stores_on(url) as (database, stores):
        conversation = await created(stores, "a")
        await stores.responses.put(OWNER, response("r"))
        database.lost = 1
        await stores.conversations.add(OWNER, conversation, items("b"))
        database.lost = 1
        await stores.conversations.remove(OWNER, conversation, "a")
        assert await ids(stores, conversation) == ["b"]
        database.lost = 1
        await stores.conversations.delete(OWNER, conversation)
        database.lost = 1
        assert await stores.responses.remove(OWNER, "r")
        assert not await stores.responses.remove(OWNER, "r")


async def test_work_that_was_given_up_goes_no_further(url: str) -> None:
    bench = SharedBench(url)
    await bench.open()
    database = PostgresDatabase(url)
    stored = Storage(database, patience=0.1)

    def work(execute: Execute) -> None:
        lock(execute)
        execute("SELECT pg_sleep(0.3)")
        execute("SELECT pg_sleep(60)")

    with pytest.raises(RefusedError):
        await stored.run(work)
    with anyio.fail_after(20):
        while bench.rows("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted"):
            await anyio.lowlevel.checkpoint()
    await database.close()
    await bench.close()


async def test_a_database_that_does_not_answer_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stores_on(url) as (database, stores), app_on(stores, chatting(answering("Hello"))) as app:
        conversation = (await post(app, "/v1/conversations", {})).json["id"]
        database.answers.clear()
        with monkeypatch.context() as impatient:
            assert isinstance(stores.responses, SharedResponses)
            impatient.setattr(stores.responses._storage, "_patience", 0.05)
            for _ in range(2):
                reply = await post(app, PATH, {"input": "Hi", "conversation": conversation})
                assert refusal(reply) == (503, "store_unavailable", "true")
        database.answers.set()
        assert (await post(app, PATH, {"input": "Hi", "conversation": conversation})).status == 200
        kept = (await get(app, f"/v1/conversations/{conversation}/items")).json["data"]
        assert len(kept) == 2, "what was given up had no effect"
