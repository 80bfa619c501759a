"""Parts of a cluster that need no Ray: settings, scaling, waiting, hosting, one request on a replica."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from engine.errors import Busy
from gateway.cli import SettingsError, read_settings
from gateway.cluster.arguments import flags_of
from gateway.cluster.exchange import Exchange
from gateway.cluster.health import reason_in
from gateway.cluster.host import Host
from gateway.cluster.ingress.waiting import WaitingRoom
from gateway.cluster.request import ForwardedRequest
from gateway.cluster.scaling import policy, replicas_for
from gateway.cluster.sent import SentRequests
from gateway.cluster.settlement import SettledResponses
from gateway.cluster.split import (
    ClusterSettingsError,
    ModelShare,
    check_for_cluster,
    check_room,
    forgets_responses,
    shares,
)
from gateway.hub.cache import HubCache
from gateway.like.llama_server import translate
from gateway.residency.memory import Memory
from tests.gateway.hub.cached import cached_model
from tests.models import model_path

pytestmark = pytest.mark.anyio
BUDGET = Memory(host=2**30)


@pytest.fixture
def anyio_backend() -> str:
    """Ray runs asyncio."""
    return "asyncio"


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("partition_cache", True, True),  # of a YAML file
        ("partition-cache", "true", True),  # of the command line of Ray, which has texts only
        ("partition-cache", "false", False),
        ("access-log", False, "off"),  # YAML's words on and off
        ("speculation", True, "on"),
        ("slots", 1, 1),
        ("seed", -1, -1),
        ("stop", "--end--", ("--end--",)),
        ("stop", ["one", "two"], ("one", "two")),
    ],
)
def test_arguments_of_the_application_are_flags(name: str, value: object, read: object) -> None:
    assert getattr(read_settings(["serve", *flags_of({name: value})], {}), name.replace("-", "_")) == read


@pytest.mark.parametrize("args", [{"partition-cache": "yes"}, {"no_such_flag": 1}])
def test_arguments_that_are_no_settings_are_refused(args: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        read_settings(["serve", *flags_of(args)], {})


def test_a_default_of_another_server_is_no_choice_of_a_replica() -> None:
    """The sampling that the model's file recommends comes before it."""
    line = translate(["--top-p", "0.5"], {})
    (part,) = shares(read_settings(line.arguments, line.environment, line.defaults), BUDGET).values()
    own = part.settings.served[0].settings
    assert own.chosen_sampling == {"top_p": 0.5}
    assert own.other_sampling["temperature"] == 0.8


def test_each_model_has_settings_of_its_own() -> None:
    flags = ("--model", f"a={model_path()}", "--model", f"b/c={model_path()}", "--threads", "3", "--slots", "5")
    parts = shares(read_settings(["serve", *flags], {}), BUDGET)
    assert [part.name for part in parts.values()] == ["model-a", "model-b-c"]
    assert [[one.name for one in part.settings.served] for part in parts.values()] == [["a"], ["b/c"]]
    for part in parts.values():
        assert not part.settings.on_demand
        assert (part.cpus, part.gpus, part.settings.slots) == (3, 0, 5)
        assert part.settings.context is not None
        assert 2**20 < part.memory < 2**30


def test_a_model_of_the_hub_on_this_machine_is_reserved_the_memory_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = HubCache(tmp_path)
    monkeypatch.setattr("gateway.hub.opening.hub_cache", lambda: cache)
    cached_model(cache, "user/some-GGUF", "some-Q4_K_M.gguf", model_path().read_bytes())
    flags = ("--model", f"file={model_path()}", "--model", "hub=hf:user/some-GGUF")
    file, hub = shares(read_settings(["serve", *flags], {}), BUDGET).values()
    assert (hub.memory, hub.settings.context) == (file.memory, file.settings.context)
    assert str(hub.settings.served[0].place) == "hf:user/some-GGUF"


@pytest.mark.parametrize(
    "flags",
    [
        ("--unix-socket", "x"),
        ("--metrics-port", "1"),
        ("--idle-unload", "9"),
        ("--prefix-secret", "s" * 16),
        ("--host", "127.0.0.1,127.0.0.2"),
    ],
)
def test_a_setting_without_effect_in_a_cluster_is_refused(flags: tuple[str, ...]) -> None:
    with pytest.raises(ClusterSettingsError, match=flags[0]):
        check_for_cluster(read_settings(["serve", *flags], {}))


def test_a_setting_of_one_model_without_effect_in_a_cluster_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f'[models.a]\nfile = "{model_path()}"\n[models.b]\nfile = "{model_path()}"\nidle-unload = 9\n')
    with pytest.raises(ClusterSettingsError, match="--idle-unload has no effect"):
        check_for_cluster(read_settings(["serve", "--config", str(file)], {}))


@pytest.mark.parametrize(
    ("flags", "forgets"),
    [
        ((), False),
        (("--replicas", "2"), True),
        (("--max-replicas", "2"), True),
        (("--model", f"a={model_path()}", "--model", f"b={model_path()}"), True),
        (("--replicas", "2", "--responses-store", "postgresql://localhost/texts"), False),
    ],
)
def test_only_a_shared_store_has_the_responses_of_all_replicas(flags: tuple[str, ...], forgets: bool) -> None:
    assert forgets_responses(read_settings(["serve", *flags], {})) == forgets


@pytest.mark.parametrize(
    ("replicas", "gpus", "reason"),
    [
        (2, 2, None),
        (3, 3, "the replicas need 3.00 GiB of memory, and Ray has 2.50 GiB of memory: see --replicas and --context"),
        (2, 1, "the replicas need 2 GPUs, and Ray has 1: see --replicas and --gpu-layers"),
    ],
)
def test_replicas_that_a_machine_has_no_room_for_are_refused(replicas: int, gpus: int, reason: str | None) -> None:
    parts = [ModelShare("model-a", read_settings(["serve"], {}), cpus=1, gpus=1, memory=2**30)]
    expected = nullcontext() if reason is None else pytest.raises(ClusterSettingsError, match=f"^{re.escape(reason)}$")
    with expected:
        check_room(parts, replicas, memory=2.5 * 2**30, gpus=gpus)


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        ("Failed. Error:\n  File\nengine.errors.LoadError: a.gguf: no such file\n", "a.gguf: no such file"),
        ("| Traceback\n  | OSError: no room\n  +------\n", "no room"),
        ("RuntimeError", "RuntimeError"),
        ("it was never ready: it took too long", "it was never ready: it took too long"),
        ("", ""),
    ],
)
def test_the_reason_of_a_failure_is_the_text_of_the_last_exception(report: str, reason: str) -> None:
    assert reason_in(report) == reason


def test_replicas_follow_the_load() -> None:
    assert replicas_for([], 0) == replicas_for([0.0, 0.0], 0) == 1
    assert replicas_for([0.8, 0.8], 0) == 2
    assert replicas_for([1.0, 1.0], 0) == 3
    assert replicas_for([2.0], 1.2) == 4


@pytest.mark.parametrize(
    ("queue", "tokens", "queued", "wanted"), [(0.5, 0.1, 0, 1), (0.1, 0.9, 0, 2), (1.0, 0.1, 4, 3), (None, None, 0, 7)]
)
def test_the_policy_takes_the_larger_load(queue: Any, tokens: Any, queued: int, wanted: int) -> None:
    metrics = {} if queue is None else {"queue": {"one": queue}, "tokens": {"one": tokens}}
    context = SimpleNamespace(
        aggregated_metrics=metrics,
        total_queued_requests=queued,
        target_num_replicas=7,
        config=SimpleNamespace(target_ongoing_requests=4),
    )
    assert policy(context) == (wanted, {})


@pytest.mark.parametrize("places", [0, 2])
async def test_only_so_many_requests_wait_for_a_place(places: int) -> None:
    """Those that a replica has a place for are only handed over, however long that takes."""
    room, free = WaitingRoom(1, 60, lambda: places), anyio.Event()

    async def accepted() -> str:
        await free.wait()
        return "one"

    async def request() -> str:
        with room.entered():
            return await room.wait(accepted())

    async with anyio.create_task_group() as tasks:
        for _ in range(places + 1):
            tasks.start_soon(request)
        while room.waiting <= places:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(Busy, match="Too many"):
            await request()
        free.set()
    assert room.waiting == 0


async def test_a_burst_is_refused_only_as_far_as_there_is_no_place() -> None:
    room, free = WaitingRoom(1, 60, lambda: 2), anyio.Event()
    outcomes: list[str | None] = []

    async def accepted() -> str:
        await free.wait()
        return "one"

    async def request() -> None:
        try:
            with room.entered():
                outcomes.append(await room.wait(accepted()))
        except Busy as refused:
            outcomes.append(refused.code)
            if len(outcomes) == 7:
                free.set()

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(request)
    assert outcomes == ["queue_full"] * 7 + ["one"] * 3


async def test_no_more_wait_than_may_if_replicas_have_accepted_more_than_they_have_places_for() -> None:
    room, free, refused = WaitingRoom(3, 60, lambda: 4), anyio.Event(), anyio.Event()
    codes: list[str | None] = []

    async def accepted() -> str:
        await free.wait()
        return "one"

    async def request(*, at_once: bool) -> None:
        with room.entered():
            if not at_once:
                try:
                    await room.wait(accepted())
                except Busy as full:
                    codes.append(full.code)
                    if len(codes) == 5:
                        refused.set()
            await free.wait()

    async with anyio.create_task_group() as tasks:
        for number in range(14):
            tasks.start_soon(partial(request, at_once=number < 6))
        await refused.wait()
        assert room.waiting == 3
        free.set()
    assert codes == ["queue_full"] * 5


async def test_a_request_waits_only_so_long() -> None:
    with pytest.raises(Busy) as refused:
        await WaitingRoom(1, 0.01, lambda: 0).wait(anyio.sleep_forever())  # type: ignore[arg-type]
    assert refused.value.code == "queue_timeout"


async def test_a_context_is_left_by_the_task_that_entered_it() -> None:
    tasks: list[int] = []

    @asynccontextmanager
    async def context() -> AsyncIterator[str]:
        async with anyio.create_task_group():
            tasks.append(anyio.get_current_task().id)
            yield "open"
            tasks.append(anyio.get_current_task().id)

    host = Host(context())
    assert (await host.open(), host.ended) == ("open", False)
    await host.close()
    assert (len(set(tasks)), len(tasks), host.ended) == (1, 2, True)


async def test_a_context_that_cannot_be_entered_raises() -> None:
    class Full(AbstractAsyncContextManager[None]):
        @override
        async def __aenter__(self) -> None:
            raise OSError("no room")

        @override
        async def __aexit__(self, *_exception: object) -> None:
            """Do nothing: it is never entered."""

    host = Host(Full())
    with pytest.raises(OSError, match="no room"):
        await host.open()
    assert host.ended


async def test_a_context_with_task_groups_raises_the_one_failure_within() -> None:
    @asynccontextmanager
    async def context(*, room: bool) -> AsyncIterator[None]:
        async with anyio.create_task_group(), anyio.create_task_group():
            if not room:
                raise OSError("no room")
            yield

    with pytest.raises(OSError, match="no room"):
        await Host(context(room=False)).open()


async def test_a_reader_that_leaves_is_a_disconnect() -> None:
    seen: list[str] = []
    ended = anyio.Event()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        seen.extend([(await receive())["type"], (await receive())["type"]])
        ended.set()

    exchange = Exchange(app, ForwardedRequest({"type": "http"}, b""))
    async for messages in exchange.responses():
        assert [message["type"] for message in messages] == ["http.response.start"]
        break
    exchange.leave()
    await ended.wait()
    assert seen == ["http.request", "http.disconnect"]


async def test_the_requests_of_an_ingress_that_has_died_are_left() -> None:
    left: list[str] = []
    living, ended = {"one", "two"}, anyio.Event()

    async def app(scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()
        await receive()
        left.append(scope["path"])
        ended.set()

    sent = SentRequests(living.__contains__)
    first, second = (Exchange(app, ForwardedRequest({"path": path}, b"")) for path in ("/1", "/2"))
    with sent.sent_by("two", second):
        with sent.sent_by("one", first):
            await sent.look()
            await anyio.wait_all_tasks_blocked()
            assert not left
            living.remove("one")
            async with sent.watched():
                await ended.wait()
        await anyio.wait_all_tasks_blocked()
        assert left == ["/1"]
    second.leave()


async def test_a_look_for_ingresses_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cluster.sent.PERIOD", 0)
    looks: Iterator[bool | None] = iter((None, False))

    def lives(_ingress: str) -> bool:
        if (found := next(looks)) is None:
            raise RuntimeError("can't start new thread")
        return found

    sent, left = SentRequests(lives), anyio.Event()

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()
        await receive()
        left.set()

    with sent.sent_by("one", Exchange(app, ForwardedRequest({}, b""))):
        async with sent.watched():
            await left.wait()


async def test_a_failure_of_the_application_reaches_the_reader() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        raise ValueError("a defect")

    exchange = Exchange(app, ForwardedRequest({"type": "http"}, b""))
    with pytest.raises(ValueError, match="a defect"):
        _ = [messages async for messages in exchange.responses()]


@pytest.mark.parametrize("left", [False, True])
async def test_a_response_is_complete_once_its_charges_are_stored(*, left: bool) -> None:
    stored = anyio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await send({"type": "http.response.body", "body": b"last"})

    exchange = Exchange(SettledResponses(app, stored.wait), ForwardedRequest({"method": "POST"}, b""))
    seen: list[bytes] = []

    async def read() -> None:
        async for messages in exchange.responses():
            seen.extend(message["body"] for message in messages if "body" in message)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        assert seen == [b"first"]
        if left:
            exchange.leave()
        stored.set()
    assert seen == [b"first", b"last"]


async def test_a_response_without_charges_does_not_wait_for_those_of_others() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"all"})

    exchange = Exchange(SettledResponses(app, anyio.sleep_forever), ForwardedRequest({"method": "GET"}, b""))
    assert [message async for messages in exchange.responses() for message in messages]
