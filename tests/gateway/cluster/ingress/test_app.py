"""The ingress: forwarding, replays after the loss of a replica, and answers for the whole cluster."""

import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import httpx
import orjson
import pytest
from starlette.types import ASGIApp

from engine import Unavailable
from gateway.cli import read_settings
from gateway.cluster.ingress import app as app_module
from gateway.cluster.ingress.app import create_ingress
from gateway.cluster.ingress.log import IngressLog
from gateway.cluster.ingress.placing import Anywhere
from gateway.cluster.ingress.reading import PromptReader
from gateway.cluster.ingress.replicas import ReplicaLostError
from gateway.cluster.request import Messages
from gateway.middleware.body_budget import FREE
from tests.backends import ON_ASYNCIO
from tests.gateway.asgi import AsgiCall
from tests.gateway.cluster.ingress.fakes import Answer, FakeForwarded, FakeReplicas, answering, body, failing, head
from tests.models import model_path

pytestmark = [pytest.mark.anyio, ON_ASYNCIO]

LOST = ReplicaLostError("ActorDiedError")
EVENTS = "text/event-stream; charset=utf-8"
CHAT = "/v1/chat/completions"
PAGE = "https://example.org"
IDS = {"a": b"null", "b": b'"b"', "c": b'"c"', "d": b"null"}
"""JSON of the first and last id in the list of each model, whose key may not use all of them."""


def ingress(*more: str, **models: FakeReplicas) -> ASGIApp:
    flags = [part for name in models for part in ("--model", f"{name}={model_path()}")]
    settings = read_settings(["serve", *flags, *more], {})
    return create_ingress(settings, models, PromptReader(settings, b"").apis, Anywhere())


async def ask(app: ASGIApp, path: str, content: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        return await client.request("GET" if content is None else "POST", path, json=content, headers=headers)


async def replayed(*answers: Answer) -> tuple[httpx.Response, FakeReplicas]:
    replicas = FakeReplicas(list(answers))
    response = await ask(ingress(small=replicas), CHAT, {"messages": []})
    assert not replicas.open
    return response, replicas


async def test_a_request_keeps_its_id_and_its_body() -> None:
    replicas = FakeReplicas([answering(b"{}")])
    response = await ask(ingress(small=replicas), CHAT, {"messages": []})
    [(request, _)] = replicas.asked
    headers = dict(request.scope["headers"])
    assert (response.status_code, orjson.loads(request.body)) == (200, {"messages": []})
    assert response.headers.get_list("x-request-id") == [headers[b"x-request-id"].decode()]


async def test_the_model_chooses_the_replicas() -> None:
    small, large = FakeReplicas([answering(b"1")]), FakeReplicas([answering(b"2")])
    app = ingress(small=small, large=large)
    answers = [(await ask(app, CHAT, {"model": name})).content for name in ("large", "small", "default")]
    assert answers == [b"2", b"1", b"1"]
    assert (await ask(app, "/v1/models/large")).content == b"2"
    assert (await ask(app, "/props?model=large")).content == b"2"
    assert (await ask(app, "/api/chat", {"model": "large:latest"})).content == b"2", "as /api/tags has it"
    assert (await ask(app, "/api/chat", {"model": "default:latest"})).content == b"1"
    assert (await ask(app, "/v1/responses/resp_1")).content == b"1", "any replica has it by the shared store"


async def test_an_unknown_model_is_refused_in_the_shape_of_the_api() -> None:
    app = ingress(small=FakeReplicas([]), large=FakeReplicas([]))
    openai, anthropic = [await ask(app, path, {"model": "no"}) for path in (CHAT, "/v1/messages")]
    assert (openai.status_code, openai.json()["error"]["code"]) == (404, "model_not_found")
    assert (anthropic.status_code, anthropic.json()["type"]) == (404, "error")


@pytest.mark.parametrize(
    "shown",
    [(), (head(),), (head(EVENTS), body(b": keep-alive\n\n", more=True))],
    ids=["nothing", "a head", "a comment"],
)
async def test_a_request_that_has_shown_nothing_runs_again(shown: Any) -> None:
    media = EVENTS if len(shown) > 1 else "application/json"
    response, replicas = await replayed(failing(*shown, error=LOST), answering(b"data: whole\n\n", media))
    assert response.status_code == 200
    assert response.content.removeprefix(b": keep-alive\n\n") == b"data: whole\n\n"
    assert len(replicas.asked) == 2


@pytest.mark.parametrize(
    ("media", "ping"), [(EVENTS, b'event: ping\ndata: {"type":"ping"}\n\n'), ("application/x-ndjson", b" ")]
)
async def test_a_stream_of_another_api_that_has_shown_pings_alone_runs_again(media: str, ping: bytes) -> None:
    lost = failing(head(media), body(ping, more=True), error=LOST)
    response, replicas = await replayed(lost, answering(b"whole", media))
    assert (response.content, len(replicas.asked)) == (ping + b"whole", 2)


async def test_a_stream_that_has_shown_text_ends_with_an_error() -> None:
    response, replicas = await replayed(failing(head(EVENTS), body(b"data: 1\n\n", more=True), error=LOST))
    first, last = response.content.removesuffix(b"\n\n").split(b"\n\n")
    assert (first, orjson.loads(last.removeprefix(b"data: "))["error"]["code"]) == (b"data: 1", "engine_died")
    assert len(replicas.asked) == 1


async def test_lines_that_have_shown_text_end_with_an_error() -> None:
    shown = (head("application/x-ndjson"), body(b"{}\n", more=True))
    response, _ = await replayed(failing(*shown, error=LOST))
    assert b"error" in response.content.splitlines()[-1]


async def test_a_request_whose_replicas_are_lost_twice_is_an_error_to_retry() -> None:
    response, replicas = await replayed(failing(error=LOST))
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_died")
    assert response.headers["x-should-retry"] == "true"
    assert len(replicas.asked) == 2


async def test_a_replay_with_another_kind_of_response_ends_with_an_error() -> None:
    keep_alive = failing(head(EVENTS), body(b": keep-alive\n\n", more=True), error=LOST)
    response, _ = await replayed(keep_alive, answering(b"{}", status=400))
    assert b'"code":"engine_died"' in response.content


async def test_a_stream_with_pings_alone_ends_with_an_error_if_no_other_replica_takes_it() -> None:
    lost = failing(head(EVENTS), body(b": keep-alive\n\n", more=True), error=LOST)
    response, _ = await replayed(lost, failing(error=Unavailable("No replica.", code="no_replica")))
    ping, end = response.content.removesuffix(b"\n\n").split(b"\n\n")
    assert (ping, orjson.loads(end.removeprefix(b"data: "))["error"]["code"]) == (b": keep-alive", "no_replica")


async def test_a_stream_whose_deadline_passes_ends_with_an_error() -> None:
    async def endless(_request: Any) -> AsyncIterator[Messages]:
        yield [head(EVENTS), body(b"data: 1\n\n", more=True)]
        await anyio.sleep_forever()

    replicas = FakeReplicas([endless])
    response = await ask(ingress("--request-timeout", "0.1", small=replicas), CHAT, {"messages": []})
    first, last = response.content.removesuffix(b"\n\n").split(b"\n\n")
    assert (first, orjson.loads(last.removeprefix(b"data: "))["error"]["code"]) == (b"data: 1", "deadline_exceeded")
    assert not replicas.open


async def test_half_an_answer_that_is_no_stream_is_cut() -> None:
    with pytest.raises(Exception, match="died"):
        await replayed(failing(head(), body(b"{", more=True), error=LOST))


async def test_a_large_body_does_not_wait_for_memory_while_ray_reads_on() -> None:
    app, read = ingress("--body-budget", "1", small=FakeReplicas([])), anyio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield b" " * (FREE + 1)
        read.set()
        await anyio.sleep_forever()

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(client.post, CHAT, content=half()))
                await read.wait()
                response = await client.post(CHAT, content=b" " * (FREE + 1))
                tasks.cancel_scope.cancel()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "body_budget_exhausted")
    assert response.headers["connection"] == "close"


async def test_a_client_that_leaves_ends_the_request() -> None:
    async def never(_request: Any) -> Any:
        await anyio.sleep_forever()
        yield []

    replicas = FakeReplicas([never])
    with anyio.move_on_after(0.1):
        await ask(ingress(small=replicas), CHAT, {})
    assert (len(replicas.asked), replicas.open) == (1, 0)


async def test_the_ingress_writes_the_lines_of_requests_that_no_replica_has(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.access")
    app = ingress(small=FakeReplicas([answering(b"{}")]), large=FakeReplicas([failing(error=LOST)]))
    for name in ("small", "large", "none"):
        await ask(app, CHAT, {"model": name})
    lines = [vars(record) for record in caplog.records if record.name == "gateway.access"]
    assert [(line["status"], line["cause"]) for line in lines] == [(503, "engine_died"), (404, "model_not_found")]


@pytest.mark.parametrize("access_log", ["on", "off"])
async def test_the_ingress_forgets_a_request_at_its_end(access_log: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.access")
    log = IngressLog(writes=access_log == "on")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_module, "IngressLog", lambda **_: log)
        app = ingress("--access-log", access_log, small=FakeReplicas([answering(b"{}")]), large=FakeReplicas([]))
    assert [(await ask(app, CHAT, {"model": name})).status_code for name in ("small", "none")] == [200, 404]
    assert not log._accepted
    assert len(caplog.records) == (access_log == "on")


async def test_a_client_that_leaves_before_a_replica_has_its_request_has_a_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeForwarded, "accepted", lambda _self: anyio.sleep_forever())
    caplog.set_level(logging.INFO, "gateway.access")
    async with AsgiCall(ingress(small=FakeReplicas([answering(b"{}")])), CHAT, b"{}").running() as call:
        await anyio.wait_all_tasks_blocked()
        call.hang_up()
    [line] = [vars(record) for record in caplog.records if record.name == "gateway.access"]
    assert (line["outcome"], line["cause"]) == ("cancelled", "client_left")


@pytest.mark.parametrize("model", ["small", "none"])
async def test_allowed_pages_can_read_every_response(model: str) -> None:
    async def answer(_request: Any) -> AsyncIterator[Messages]:
        of_replica = {**head(), "headers": [*head()["headers"], (b"access-control-allow-origin", PAGE.encode())]}
        yield [of_replica, body(b"{}")]

    replicas = FakeReplicas([answer])
    app = ingress("--allow-origin", PAGE, small=replicas, large=replicas)
    response = await ask(app, CHAT, {"model": model}, origin=PAGE)
    assert response.headers.get_list("access-control-allow-origin") == [PAGE]


async def test_health_needs_a_ready_replica_of_each_model() -> None:
    small, large = FakeReplicas([]), FakeReplicas([], {"two": {"ready": 0.0}})
    app = ingress(small=small, large=large)
    for path in ("/health", "/v1/health", "/readyz", "/ping"):
        assert (await ask(app, path)).status_code == 503
    assert (await ask(app, "/ping", {})).status_code == 503
    assert (await ask(app, "/livez")).status_code == 200
    large.known["two"]["ready"] = 1.0
    assert (await ask(app, "/health")).json() == {"status": "ok", "replicas": {"small": 1, "large": 1}}


async def test_lists_have_the_models_of_all() -> None:
    small = FakeReplicas([answering(b'{"object":"list","data":[{"id":"small"}]}')])
    large = FakeReplicas([answering(b'{"object":"list","data":[{"id":"large"}]}')])
    answer = (await ask(ingress(small=small, large=large), "/v1/models")).json()
    assert answer == {"object": "list", "data": [{"id": "small"}, {"id": "large"}]}


async def test_a_list_begins_and_ends_with_its_first_and_last_model() -> None:
    lists = {name: b'{"data":[],"first_id":%b,"last_id":%b}' % (one, one) for name, one in IDS.items()}
    app = ingress(**{name: FakeReplicas([answering(page)]) for name, page in lists.items()})
    answer = (await ask(app, "/v1/models")).json()
    assert (answer["first_id"], answer["last_id"]) == ("b", "c")


async def test_lists_are_without_a_model_that_has_no_replica() -> None:
    small = FakeReplicas([answering(b'{"data":[{"id":"small"}]}')])
    large = FakeReplicas([failing(error=Unavailable("The model has no replica now.", code="no_replica"))])
    assert (await ask(ingress(small=small, large=large), "/v1/models")).json() == {"data": [{"id": "small"}]}


async def test_responses_that_no_replica_counts_are_those_of_the_ingress() -> None:
    page = b'# HELP http_requests_total H.\n# TYPE http_requests_total counter\nhttp_requests_total{status="4xx"} 7.0\n'
    small = FakeReplicas([answering(b"{}", status=400), answering(page)])
    app = ingress(small=small, lost=FakeReplicas([failing(error=LOST)], {}))
    for name in ("none", "none", "small", "lost"):
        await ask(app, CHAT, {"model": name})
    for path in ("/health", "/livez"):
        await ask(app, path)
    text = (await ask(app, "/metrics")).text
    assert 'http_requests_total{replica="one",status="4xx"} 7.0' in text
    own = {line for line in text.splitlines() if line.startswith('http_requests_total{replica="ingress"')}
    counts = {"1xx": 0, "2xx": 0, "3xx": 0, "4xx": 2, "5xx": 1}
    assert own == {
        f'http_requests_total{{replica="ingress",status="{status}"}} {count}.0' for status, count in counts.items()
    }
    assert text.count("# TYPE http_requests_total") == 1


async def test_metrics_are_those_of_every_replica() -> None:
    page = b'# HELP a A.\n# TYPE a counter\na{b="c"} 1.0\n# HELP d D.\n# TYPE d gauge\nd 2.0\n'
    replicas = FakeReplicas([answering(page), answering(page), failing(error=LOST)], {"x": {}, "y": {}, "z": {}})
    text = (await ask(ingress(small=replicas), "/metrics")).text
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert min(samples[:3]).startswith("llama_gateway_replica_up")
    assert [line.endswith(" 1") for line in samples[:3]].count(True) == 2
    assert len([line for line in samples if line.startswith('a{replica="')]) == 2
    assert text.count("# HELP a A.") == text.count("# TYPE d gauge") == 1
    assert {placement.only for _, placement in replicas.asked} == {True}
