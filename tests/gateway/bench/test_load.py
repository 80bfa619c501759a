"""Clients on real sockets, against servers that misbehave as scripted."""

import runpy
import select
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat

import anyio
import pytest
from anyio.abc import SocketStream

from gateway.bench import connection
from gateway.bench.client import Client
from gateway.bench.connection import open_receiver
from gateway.bench.exchange import Exchange
from gateway.bench.load import run_clients
from gateway.bench.models import NoModel, only_model
from gateway.bench.outcome import Failure, Outcome
from gateway.bench.target import Target, parse_target
from tests.gateway.bench.scripted import (
    CERTIFICATE,
    DONE,
    HEAD,
    Hangup,
    Peer,
    Request,
    Script,
    event,
    framed,
    listening,
    scripted,
    stream,
    text,
    usage,
    whole,
)

pytestmark = pytest.mark.anyio

GUARD = 20


def posts(target: Target, count: int) -> Iterator[bytes]:
    return repeat(target.post("completions", {"prompt": "Once", "stream": True}), count)


async def outcomes(
    target: Target, requests: int, *, clients: int = 1, streamed: bool = True, answer_timeout: float = GUARD
) -> list[Outcome]:
    told: list[Outcome] = []
    with anyio.fail_after(GUARD):
        await run_clients(
            target,
            posts(target, requests),
            clients=clients,
            streamed=streamed,
            answer_timeout=answer_timeout,
            on_outcome=told.append,
        )
    assert len(told) == requests
    return told


async def failures(script: Script, *, answer_timeout: float = GUARD) -> list[Failure | None]:
    """Return the failures of three requests."""
    async with scripted(script) as server:
        return [made.failure for made in await outcomes(parse_target(server.url()), 3, answer_timeout=answer_timeout)]


async def good(_: Request, peer: Peer) -> None:
    await peer.send(stream(text(), text(), usage(2), DONE))


async def test_sequential_streams_share_one_connection() -> None:
    async with scripted(good) as server:
        made = await outcomes(parse_target(server.url(), "secret"), 5)
    assert (server.connections, len(server.requests)) == (1, 5)
    request = server.requests[0]
    assert (request.line, request.body["prompt"]) == ("POST /v1/completions HTTP/1.1", "Once")
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    for one in made:
        assert (one.failure, one.tokens, one.chunks) == (None, 2, 2)
        assert one.begun <= one.arrivals[0][0] <= one.ended


async def test_exactly_as_many_clients_as_configured_send_requests_at_once() -> None:
    together, open_now, most = anyio.Event(), 0, 0

    async def script(request: Request, peer: Peer) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        if open_now == 16:
            together.set()
        await together.wait()
        open_now -= 1
        await good(request, peer)

    async with scripted(script) as server:
        made = await outcomes(parse_target(server.url()), 64, clients=16)
    assert (most, server.connections) == (16, 16)
    assert all(one.failure is None for one in made)


async def test_arrivals_are_reads_in_their_order() -> None:
    """The server waits for the client's read: only then does it answer the next of two requests."""

    async def slowly(_: Request, peer: Peer) -> None:
        for part in (HEAD, framed(b": keep-alive\n\n"), framed(text()), framed(text()), framed(DONE), b"0\r\n\r\n"):
            await peer.send(part)
            await anyio.wait_all_tasks_blocked()

    async with scripted(slowly) as server:
        (made,) = await outcomes(parse_target(server.url()), 1)
    assert (made.failure, made.chunks) == (None, 2)
    times = [made.begun, *[time for time, _ in made.arrivals], made.ended]
    assert times == sorted(times)


async def test_whole_answers_have_an_outcome() -> None:
    answer = {"choices": [{"text": " word"}], "usage": {"prompt_tokens": 3, "completion_tokens": 50}}

    async def script(_: Request, peer: Peer) -> None:
        await peer.send(whole(answer))

    async with scripted(script) as server:
        made = await outcomes(parse_target(server.url()), 2, streamed=False)
    assert [(one.failure, one.tokens, one.arrivals) for one in made] == [(None, 50, ())] * 2


async def test_a_server_without_keep_alive_gets_a_connection_per_request() -> None:
    async def announced(_: Request, peer: Peer) -> None:
        await peer.send(stream(text(), DONE).replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        raise Hangup

    async with scripted(announced) as server:
        made = await outcomes(parse_target(server.url()), 3)
    assert (server.connections, [one.failure for one in made]) == (3, [None] * 3)


async def test_a_close_between_two_requests_is_not_a_failure() -> None:
    closed = anyio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await good(request, peer)
        await peer.stream.aclose()
        closed.set()
        raise Hangup

    async with scripted(script) as server, open_receiver() as receiver:
        target = parse_target(server.url())
        first, second = Exchange(streamed=True), Exchange(streamed=True)
        with anyio.fail_after(GUARD), Client(target, receiver, GUARD) as client:
            await client.send(next(posts(target, 1)), first)
            await closed.wait()
            await anyio.wait_all_tasks_blocked()
            await client.send(next(posts(target, 1)), second)
    assert (first.outcome(0).failure, second.outcome(0).failure, server.connections) == (None, None, 2)


def test_the_receiver_does_without_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in vars(select) if name.startswith(("epoll", "EPOLL"))]:  # as on macOS
        monkeypatch.delattr(select, name)
    assert runpy.run_path(connection.__file__)["open_receiver"]


async def test_a_refusal_has_the_servers_message() -> None:
    async def script(_: Request, peer: Peer) -> None:
        await peer.send(whole({"error": {"message": "The queue is full."}}, 429))

    assert await failures(script) == [Failure("status 429", "The queue is full.")] * 3


async def test_an_error_event_is_a_failure() -> None:
    async def script(_: Request, peer: Peer) -> None:
        await peer.send(stream(text(), event({"error": {"message": "The engine died."}})))

    assert await failures(script) == [Failure("error event", "The engine died.")] * 3


async def test_a_cut_connection_is_a_failure() -> None:
    async def script(_: Request, peer: Peer) -> None:
        await peer.send(HEAD, framed(text()))
        raise Hangup

    assert await failures(script) == [Failure("cut", "the server closed the connection inside its answer")] * 3


async def test_a_reset_connection_is_a_failure() -> None:
    async def script(_: Request, peer: Peer) -> None:
        await peer.reset()

    assert await failures(script) == [Failure("connection", "Connection reset by peer")] * 3


async def test_silence_ends_at_the_timeout() -> None:
    async def script(_: Request, peer: Peer) -> None:
        await peer.send(HEAD, framed(text()))
        await anyio.sleep_forever()

    assert await failures(script, answer_timeout=0.05) == [Failure("timeout", "not answered within 0.05 s")] * 3


async def test_a_refused_connection_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = await outcomes(parse_target(f"http://127.0.0.1:{port}/v1"), 2)
    assert [one.failure for one in made] == [Failure("connection", "Connection refused")] * 2


async def test_a_host_without_an_address_is_a_failure() -> None:
    (made,) = await outcomes(replace(parse_target("http://127.0.0.1"), host="no..host"), 1)
    assert made.failure
    assert made.failure.kind == "connection"


async def test_a_refusal_before_the_whole_request_was_read_is_reported() -> None:
    refusal = whole({"error": {"message": "The body is too large."}}, 413, "Connection: close\r\n")

    async def refuse(peer: SocketStream) -> None:
        async with peer:
            await peer.receive(1000)
            await peer.send(refusal)

    listener, port = await listening()
    target = parse_target(f"http://127.0.0.1:{port}/v1")
    large = target.post("completions", {"prompt": "x" * 20_000_000})
    told: list[Outcome] = []
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, refuse)
        with anyio.fail_after(GUARD):
            await run_clients(
                target, iter([large]), clients=1, streamed=True, answer_timeout=GUARD, on_outcome=told.append
            )
        tasks.cancel_scope.cancel()
    assert [one.failure for one in told] == [Failure("status 413", "The body is too large.")]


async def test_reported_outcomes_survive_a_cancel() -> None:
    told: list[Outcome] = []
    hanging = anyio.Event()

    async def script(request: Request, peer: Peer) -> None:
        if told:
            hanging.set()
            await anyio.sleep_forever()
        await good(request, peer)

    async with scripted(script) as server, anyio.create_task_group() as tasks:
        target = parse_target(server.url())

        async def load() -> None:
            await run_clients(
                target, posts(target, 9), clients=1, streamed=True, answer_timeout=GUARD, on_outcome=told.append
            )

        tasks.start_soon(load)
        with anyio.fail_after(GUARD):
            await hanging.wait()
        tasks.cancel_scope.cancel()
    assert [one.failure for one in told] == [None]


def trusting(target: Target) -> Target:
    return replace(target, tls=ssl.create_default_context(cafile=str(CERTIFICATE)))


async def test_https_is_supported() -> None:
    async with scripted(good, tls=True) as server:
        made = await outcomes(trusting(parse_target(server.url("https"))), 4, clients=2)
    assert [(one.failure, one.tokens) for one in made] == [(None, 2)] * 4
    assert server.connections == 2


async def test_https_with_more_in_a_record_than_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.bench.connection.READ_SIZE", 7)
    async with scripted(good, tls=True) as server:
        made = await outcomes(trusting(parse_target(server.url("https"))), 3)
    assert [(one.failure, one.tokens) for one in made] == [(None, 2)] * 3


async def test_an_untrusted_https_certificate_is_a_failure() -> None:
    async with scripted(good, tls=True) as server:
        (made,) = await outcomes(parse_target(server.url("https")), 1)
    assert made.failure
    assert made.failure.kind == "connection"
    assert "self-signed certificate" in made.failure.words or "CERTIFICATE_VERIFY_FAILED" in made.failure.words


def listing(body: object, status: int = 200) -> Script:
    async def script(request: Request, peer: Peer) -> None:
        assert request.line == "GET /v1/models HTTP/1.1"
        await peer.send(whole(body, status))

    return script


async def test_the_only_model_is_chosen() -> None:
    async with scripted(listing({"object": "list", "data": [{"id": "tiny"}]})) as server:
        assert await only_model(parse_target(server.url()), GUARD) == "tiny"


@pytest.mark.parametrize(
    ("body", "status", "complaint"),
    [
        ({"data": [{"id": "a"}, {"id": "b"}]}, 200, "^name one with --model: it has 2: a, b$"),
        ({"data": []}, 200, r'^name one with --model: not a list of models: {"data":\[\]}$'),
        (["x"], 200, r'^name one with --model: not a list of models: \["x"\]$'),
        (b"Hello", 200, "^name one with --model: not a list of models: Hello$"),
        ({"error": {"message": "Wrong key."}}, 401, "^send its key by --api-key, .*: status 401: Wrong key.$"),
        ({"error": {"message": "Not Found"}}, 404, "^name one .* URL .* such as /v1: status 404: Not Found$"),
        ({"error": {"message": "Full"}}, 429, "^name one with --model: status 429: Full$"),
    ],
)
async def test_a_server_without_a_single_model_is_an_error(body: object, status: int, complaint: str) -> None:
    async with scripted(listing(body, status)) as server:
        with pytest.raises(NoModel, match=complaint):
            await only_model(parse_target(server.url()), GUARD)
