"""Gateways that share their responses and conversations in one database, also when one of them dies."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest
from starlette.types import ASGIApp

from engine import RequestError
from gateway.apis.openai.conversations.store import TurnEnd
from gateway.apis.openai.responses.store.pages import Page
from gateway.apis.openai.shared_store import entries, presence
from gateway.apis.openai.shared_store.opening import open_shared_stores
from gateway.apis.openai.shared_store.orphans import fail_orphans
from gateway.apis.openai.stores import Bounds, Stores
from gateway.app import Equipment, Gateway
from gateway.middleware.errors import RefusedError
from gateway.storage.postgres import PostgresDatabase
from gateway.stores import OpenStores
from tests.backends import ON_TRIO
from tests.gateway.apis.openai.responses.asking import BACKGROUND, PATH, answering, chatting, until
from tests.gateway.apis.openai.stores.bench import OWNER, SharedBench, created, ids, item, items, response
from tests.gateway.application import gateway_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine, say_nothing
from tests.postgres import log_of

pytestmark = [pytest.mark.anyio, ON_TRIO]  # for which psycopg has no connection of its own

BOUNDS = Bounds(100, 10**7, 10**6)
CONVERSATIONS = "/v1/conversations"
DIE = "UPDATE stored_gateways SET expires_at = now() - interval '1 second'"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "POLL_INTERVAL", 0.01)


@pytest.fixture
async def bench(url: str) -> AsyncIterator[SharedBench]:
    bench = SharedBench(url)
    yield bench
    await bench.close()


@dataclass(frozen=True)
class Node:
    """A gateway with a fake engine."""

    engine: FakeEngine
    gateway: Gateway

    @property
    def app(self) -> ASGIApp:
        return self.gateway.app


@asynccontextmanager
async def nodes(url: str, *engines: FakeEngine) -> AsyncIterator[list[Node]]:
    """Run gateways on one empty database."""
    with anyio.fail_after(20):
        async with AsyncExitStack() as stack:
            opened = []
            for engine in engines:
                stores = await open_shared_stores(url, BOUNDS)
                gateway = gateway_of(engine, equipment=Equipment(stores=OpenStores(responses=stores)))
                await stack.enter_async_context(stores.open())
                await stack.enter_async_context(gateway.background.open())
                opened.append(Node(engine, gateway))
            yield opened


async def listed(app: ASGIApp, path: str) -> list[str]:
    reply = await AsgiCall(app, f"{path}/items", method="GET", query="order=asc&limit=100").run()
    return [item["id"] for item in reply.json["data"]]


async def test_a_response_of_one_is_that_of_the_other(url: str) -> None:
    async with nodes(url, chatting(answering("Hello")), chatting(answering("Again"))) as (one, other):
        first = (await post(one.app, PATH, {"input": "Hi"})).json
        assert (await get(other.app, f"{PATH}/{first['id']}")).json == first
        second = (await post(other.app, PATH, {"input": "And?", "previous_response_id": first["id"]})).json
        prompt = other.engine.generations[0].request.prompts[0]
        assert "Hello" in str(prompt)
        inputs = (await get(one.app, f"{PATH}/{second['id']}/input_items")).json["data"]
        assert [part["text"] for item in inputs for part in item["content"]] == ["And?"]
        deleted = await AsgiCall(other.app, f"{PATH}/{first['id']}", method="DELETE").run()
        assert deleted.status == 200
        assert (await get(one.app, f"{PATH}/{first['id']}")).status == 404
        lost = await post(one.app, PATH, {"input": "And?", "previous_response_id": second["id"]})
        assert (lost.status, lost.json["error"]["code"]) == (400, "previous_response_not_found")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_goes_on_at_the_other(url: str, stream: bool) -> None:
    async with nodes(url, chatting(answering("Hello")), chatting(answering("Again"))) as (one, other):
        path = f"{CONVERSATIONS}/{(await post(one.app, CONVERSATIONS, {})).json['id']}"
        for node in (one, other, one):
            asked = {"input": "Hi", "conversation": path.rpartition("/")[2], "stream": stream}
            assert (await post(node.app, PATH, asked)).status == 200
        kept = await listed(other.app, path)
        assert (len(kept), len(set(kept))) == (6, 6)
        assert await listed(one.app, path) == kept


async def test_a_background_response_is_seen_and_cancelled_by_the_other(url: str) -> None:
    async with nodes(url, chatting(say_nothing), chatting(say_nothing)) as (one, other):
        made = (await post(one.app, PATH, BACKGROUND)).json
        await until(other.app, made["id"], "in_progress")
        inputs = (await get(other.app, f"{PATH}/{made['id']}/input_items")).json["data"]
        assert inputs[0]["role"] == "user"
        cancelled = await post(other.app, f"{PATH}/{made['id']}/cancel", b"")
        assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
        assert one.engine.generations[0].left == "the response was cancelled"
        assert (await get(one.app, f"{PATH}/{made['id']}")).json == cancelled.json


async def test_a_background_response_that_the_other_deletes_is_cancelled(url: str) -> None:
    async with nodes(url, chatting(say_nothing), chatting(say_nothing)) as (one, other):
        made = (await post(one.app, PATH, BACKGROUND)).json
        path = f"{PATH}/{made['id']}"
        assert (await AsgiCall(other.app, path, method="DELETE").run()).status == 200
        assert (await get(other.app, path)).status == 404
        while one.engine.generations[0].left is None or (await get(one.app, path)).status != 404:
            await anyio.lowlevel.checkpoint()
        assert one.engine.generations[0].left == "the response was cancelled"


async def test_a_background_response_of_a_dead_gateway_has_failed(url: str, bench: SharedBench) -> None:
    dead = await bench.open()
    running = response("a", *items("asked"), status="in_progress", background=True)
    await dead.responses.announce(OWNER, running, lambda: None)
    living = await open_shared_stores(url, BOUNDS, lease=0.1)
    async with living.open():
        assert (await living.responses.get(OWNER, "a")) == running
        bench.rows(DIE)
        with anyio.fail_after(20):
            while b"failed" not in (await living.responses.get(OWNER, "a")).content.head:
                await anyio.lowlevel.checkpoint()
        failed = await living.responses.get(OWNER, "a")
        assert (failed.inputs, failed.can_continue) == (running.inputs, False)
        await dead.responses.put(OWNER, response("a", background=True))
        assert await living.responses.get(OWNER, "a") == failed, "an end that was seen is final"


async def test_the_turn_of_a_dead_gateway_ends_with_its_lease(bench: SharedBench) -> None:
    dead = await bench.open()
    conversation = await created(dead, "a")
    late, _ = await dead.conversations.begin(OWNER, conversation)
    living = await bench.join()
    with pytest.raises(RequestError) as caught:
        await living.conversations.begin(OWNER, conversation)
    assert caught.value.code == "conversation_locked"
    bench.rows(DIE)
    turn, _ = await living.conversations.begin(OWNER, conversation)
    await late.end(items("late"))
    await turn.end(items("b"))
    assert await ids(living, conversation) == ["a", "b"]


async def test_a_request_that_runs_again_takes_its_turn_from_the_dead_gateway(bench: SharedBench) -> None:
    dead = await bench.open()
    conversation = await created(dead, "a")
    late, _ = await dead.conversations.begin(OWNER, conversation, "request-1")
    living = await bench.join()
    for other in ("", "request-2"):
        with pytest.raises(RequestError):
            await living.conversations.begin(OWNER, conversation, other)
    turn, history = await living.conversations.begin(OWNER, conversation, "request-1")
    assert [item.id for item in history] == ["a"]
    await late.end(items("late"))
    await turn.end(items("b"))
    assert await ids(living, conversation) == ["a", "b"]


async def test_a_gateway_that_stops_leaves_no_turn(url: str, bench: SharedBench) -> None:
    living = await bench.open()
    conversation = await created(living, "a")
    stopped = await open_shared_stores(url, BOUNDS)
    async with stopped.open():
        await stopped.conversations.begin(OWNER, conversation)
    await living.conversations.begin(OWNER, conversation)


async def test_the_limits_count_for_all_gateways_together(bench: SharedBench) -> None:
    first = await bench.open(max_entries=4)
    second = await bench.join(max_entries=4)
    async with anyio.create_task_group() as tasks:
        for number in range(8):
            stores = (first, second)[number % 2]
            tasks.start_soon(stores.responses.put, OWNER, response(f"a{number}", item("same")))
    assert len(await bench.known()) == 4


@pytest.mark.thorough
async def test_changes_at_the_same_time_never_wait_in_a_circle(url: str) -> None:
    bench = SharedBench(url)
    chance = random.Random(1)
    gateways = [await bench.open(max_entries=12) for _ in range(3)]
    conversations = [await created(gateways[0], owner=OWNER) for _ in range(3)]

    async def change(number: int, stores: Stores) -> None:
        conversation = chance.choice(conversations)
        with suppress(RequestError, RefusedError):
            match chance.randrange(6):
                case 0:
                    await stores.responses.put(OWNER, response(f"{number}", item("same")))
                case 1:
                    await stores.conversations.page(OWNER, conversation, Page(limit=5))
                case 2:
                    await stores.conversations.add(OWNER, conversation, items(f"{number}"))
                case 3:
                    await stores.responses.announce(OWNER, response(f"{number}", background=True), lambda: None)
                    await stores.responses.put(OWNER, response(f"{number}", background=True))
                    stores.responses.forget(f"{number}")
                case _:
                    turn, _ = await stores.conversations.begin(OWNER, conversation)
                    end = TurnEnd(turn, items(f"{number}"))
                    await (stores.responses.put(OWNER, response(f"{number}"), end) if number % 3 else turn.cancel())

    async def client(first: int, stores: Stores) -> None:
        for number in range(first, first + 40):
            await change(number, stores)

    async with AsyncExitStack() as stack:
        for stores in gateways:
            await stack.enter_async_context(stores.open())
        async with anyio.create_task_group() as tasks:
            for number, stores in enumerate(2 * gateways):
                tasks.start_soon(client, 1000 * number, stores)
    assert "deadlock detected" not in log_of(url)
    counted = bench.rows("SELECT owner, count(*), sum(bytes) FROM stored_entries GROUP BY owner")
    assert counted == bench.rows("SELECT * FROM stored_owners")


async def cleaned(url: str, bench: SharedBench, left: str) -> None:
    """Run a gateway until a query finds no rows."""
    async with nodes(url, chatting(say_nothing)):
        while bench.rows(left):
            await anyio.lowlevel.checkpoint()


async def test_a_lost_response_that_cannot_be_read_is_dropped(
    url: str, bench: SharedBench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.open()
    bench.rows("INSERT INTO stored_running (id, owner, gateway, response) VALUES ('r', 'o', 'dead', '\\x00')")
    await cleaned(url, bench, "SELECT 1 FROM stored_running")
    assert "cannot be read, and is dropped: r" in caplog.text


async def test_dead_gateways_are_forgotten_also_if_they_ran_nothing(url: str, bench: SharedBench) -> None:
    await bench.open()
    bench.rows("INSERT INTO stored_gateways VALUES ('dead', now() - interval '1 second')")
    await cleaned(url, bench, "SELECT 1 FROM stored_gateways WHERE id = 'dead'")


async def test_a_gateway_with_a_late_lease_does_not_fail_its_own_responses(url: str, bench: SharedBench) -> None:
    await bench.open()
    bench.rows("INSERT INTO stored_running (id, owner, gateway, response) VALUES ('r', 'o', 'late', '')")
    database = PostgresDatabase(url)
    await database.read(lambda execute: fail_orphans(execute, "late", (), BOUNDS))
    assert bench.rows("SELECT 1 FROM stored_running")
    await database.close()


async def test_limits_that_were_lowered_hold_after_some_changes(
    bench: SharedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "MOST_EVICTED", 20)
    many = await bench.open()
    for number in range(50):
        await many.responses.put(OWNER, response(f"r{number}", item(f"i{number}")))
    few = await bench.join(max_entries=10)
    kept = []
    for number in range(3):
        await few.responses.put(OWNER, response(f"s{number}", item(f"j{number}")))
        kept.append(len(await bench.known()))
    assert kept == [31, 12, 10]


async def test_wrong_counters_do_not_hold_the_store(bench: SharedBench) -> None:
    stores = await bench.open(max_entries=5)
    bench.rows("INSERT INTO stored_owners VALUES ('nothing', 100, 100)")
    await stores.responses.put(OWNER, response("r"))
    assert (await stores.responses.get(OWNER, "r")).id == "r"
    bench.rows("TRUNCATE stored_owners CASCADE")
