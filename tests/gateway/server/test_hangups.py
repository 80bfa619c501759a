"""Hang-ups of clients: detected at once, in every form and after any bytes."""

import importlib.metadata
import logging

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from gateway.middleware.body import body_once
from gateway.middleware.body_budget import Body
from gateway.server.limits import ServerLimits
from gateway.server.transport import Transport
from tests.gateway.server.apps import Probe, hello, scoped
from tests.gateway.server.sockets import LEAVE, Site, get, post, serving
from tests.gateway.server.tls.clients import LEAVE_TLS, connected, tls_if
from tests.repeat import every_case

pytestmark = [pytest.mark.anyio, every_case]

BEFORE = {
    "a request": post(),
    "a pipelined request": post() + get("/next"),
    "half a pipelined request": post() + b"GET /ne",
    "a stray line end": post() + b"\r\n",
    "a stray line end before a close": post(headers="connection: close\r\n") + b"\r\n",
    "a stray line end on HTTP/1.0": post(version="1.0") + b"\r\n",
    "Upgrade: h2c on a POST": post(headers="upgrade: h2c\r\nconnection: upgrade, http2-settings\r\n"),
    "Upgrade: h2c on a GET": get(headers="upgrade: h2c\r\nconnection: upgrade\r\nhttp2-settings: AAMAAABk\r\n"),
    "Upgrade: websocket": get(headers="upgrade: websocket\r\nconnection: upgrade\r\n"),
    "HTTP/1.0": get(version="1.0"),
    "Connection: close": get(headers="connection: close\r\n"),
}
WITH_TLS = ("a request", "a pipelined request", "a stray line end")
"""Those of `BEFORE` that are sent over TLS, too."""


def test_the_guards_are_for_this_hypercorn() -> None:
    assert importlib.metadata.version("hypercorn") == "0.18.0"


async def everything_ends(site: Site, probe: Probe) -> None:
    await probe.cancelled.wait()
    await site.server.count_falls_to(0)


WAYS = [*((leave, False) for leave in LEAVE), *((leave, True) for leave in LEAVE_TLS)]
"""Ways to leave without TLS, and with it."""
CASES = [(*way, before) for way in WAYS for before in (WITH_TLS if way[1] else BEFORE)]


def reason_for(leave: str) -> str:
    return "client reset the connection" if leave == "reset" else "client closed the connection"


@pytest.mark.parametrize("stream", [False, True], ids=["waiting", "streaming"])
@pytest.mark.parametrize(("leave", "secure", "before"), CASES)
async def test_a_hang_up_cancels_the_request(leave: str, secure: bool, before: str, stream: bool) -> None:
    probe = Probe(stream=stream)
    async with serving(scoped(probe), tls=tls_if(secure)) as site:
        client = await connected(site)
        client.write(BEFORE[before])
        await probe.entered.wait()
        if stream:
            await client.read_until(b"begun")  # a close with bytes unread would be a reset
        LEAVE_TLS[leave](client)
        await everything_ends(site, probe)
    assert probe.closing.reason == reason_for(leave)
    assert probe.closing.error is None


@pytest.mark.parametrize("headers", ["", "connection: close\r\n"], ids=["staying", "closing"])
async def test_a_hang_up_after_pipelined_bytes_cancels_the_request(headers: str) -> None:
    probe = Probe(stream=True)
    async with serving(scoped(probe)) as site:
        client = site.client()
        client.write(post(headers=headers))
        await client.read_until(b"begun")
        client.write(b"\r\n\r\n" + get("/next"))
        client.close()
        await everything_ends(site, probe)
    assert probe.closing.reason == "client closed the connection"


def is_cancel_in_body(record: logging.LogRecord, request_id: str, reason: str) -> bool:
    fields = {"request_id": request_id, "phase": "body", "reason": reason, "tokens": 0, "freed": 0, "ms": 0.0}
    return record.getMessage() == "request cancelled" and vars(record).items() >= fields.items()


@pytest.mark.parametrize(("leave", "secure"), WAYS)
async def test_a_hang_up_inside_the_body_is_one_line_of_the_log(
    leave: str, secure: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    probe = Probe()
    async with serving(scoped(probe), tls=tls_if(secure)) as site:
        client = await connected(site)
        client.write(
            b"POST / HTTP/1.1\r\nhost: x\r\nx-request-id: half\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n"
        )
        assert await client.read_until(b"\r\n\r\n") != b""
        client.write(b"half")
        LEAVE_TLS[leave](client)
        await site.server.count_falls_to(0)
    assert not probe.entered.is_set()
    (record,) = caplog.records
    assert is_cancel_in_body(record, "half", reason_for(leave))


async def test_a_hang_up_right_after_a_complete_request_cancels_it() -> None:
    probe = Probe()
    async with serving(scoped(probe)) as site:
        client = site.client()
        client.write(post())
        client.close()
        await everything_ends(site, probe)


async def test_a_connection_is_closed_before_its_request_has_ended() -> None:
    entered, release = anyio.Event(), anyio.Event()

    async def stubborn(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await release.wait()
        await hello(scope, receive, send)

    async with serving(stubborn) as site:
        client = site.client()
        client.write(get())
        await entered.wait()
        client.half_close()
        assert await client.read_to_end() == b""
        release.set()
        await site.server.count_falls_to(0)


async def test_pipelined_requests_of_a_client_that_left_are_not_run() -> None:
    paths: list[str] = []
    notified, ended = anyio.Event(), anyio.Event()

    async def stubborn(scope: Scope, receive: Receive, send: Send) -> None:
        """Complete the response although the client is gone."""
        paths.append(scope["path"])
        while (await receive())["type"] != "http.disconnect":
            pass
        notified.set()
        await hello(scope, body_once(Body()), send)
        ended.set()

    async with serving(stubborn) as site:
        client = site.client()
        client.write(get("/first") + get("/second"))
        client.half_close()
        await notified.wait()
        await ended.wait()
        await site.server.count_falls_to(0)
    assert paths == ["/first"]


@pytest.mark.parametrize("headers", ["", "connection: close\r\n"], ids=["staying", "closing"])
async def test_a_client_that_sends_too_far_ahead_is_hung_up(headers: str) -> None:
    probe = Probe()
    async with serving(scoped(probe), ServerLimits(ahead=1000, linger=0.05)) as site:
        client = site.client()
        client.write(post(headers=headers))
        await probe.entered.wait()
        client.write(b"x" * 1001)
        await everything_ends(site, probe)
    assert probe.closing.reason == "client sent too much before its turn"


async def test_a_late_response_does_not_keep_a_connection_that_sent_too_far_ahead() -> None:
    async def stubborn(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await hello(scope, body_once(Body()), send)

    limits = ServerLimits(ahead=1000, linger=0.05, keep_alive_timeout=1000)
    async with serving(stubborn, limits) as site:
        client = site.client()
        client.write(post() + b"x" * 1001)
        await site.server.count_falls_to(0)


async def test_a_broken_body_ends_the_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    probe = Probe()
    async with serving(scoped(probe), ServerLimits(linger=0.05)) as site:
        client = site.client()
        head = b"POST / HTTP/1.1\r\nhost: x\r\nx-request-id: broken\r\ntransfer-encoding: chunked\r\n\r\n"
        client.write(head + b"no size\r\n")
        client.write(b"no size again\r\n")
        answer = await client.answer()
        assert (answer.status, answer.headers["x-request-id"]) == (400, "broken")
        assert await client.is_closed()
        await site.server.count_falls_to(0)
    assert not probe.entered.is_set()
    assert caplog.records == []


async def test_a_vanished_host_cancels_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives the connection up after the limits of the TCP options, and reports it once."""

    async def give_up(*_: object) -> bytes:
        await probe.entered.wait()
        raise TimeoutError

    probe = Probe()
    async with serving(scoped(probe)) as site:
        client = site.client()
        client.write(post())
        await probe.entered.wait()
        monkeypatch.setattr(Transport, "receive", give_up)
        client.write(b"wake")
        await everything_ends(site, probe)
    assert probe.closing.reason == "client vanished"


async def test_a_hang_up_between_requests_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    probe = Probe()
    async with serving(scoped(probe)) as site:
        client = site.client()
        with anyio.move_on_after(0):
            await client.receive()
        client.reset()
        await site.server.count_falls_to(0)
    assert not caplog.records
