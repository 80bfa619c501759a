"""Hang-ups of TLS clients: detected at once, in every form and in every phase."""

import logging
import socket

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from gateway.server.limits import ServerLimits
from tests.backends import TRIO_FIRST
from tests.gateway.server.apps import Probe, hello, scoped, ticker
from tests.gateway.server.sockets import get, post
from tests.gateway.server.test_hangups import everything_ends, is_cancel_in_body
from tests.gateway.server.test_slow_readers import Flood
from tests.gateway.server.tls.clients import LEAVE_TLS, connect, secured, serving_tls
from tests.repeat import every_case

pytestmark = [pytest.mark.anyio, every_case, pytest.mark.parametrize("anyio_backend", TRIO_FIRST)]


def reason_for(leave: str) -> str:
    return "client reset the connection" if leave == "reset" else "client closed the connection"


@pytest.mark.parametrize("stream", [False, True], ids=["waiting", "streaming"])
@pytest.mark.parametrize("before", [post(), post() + get("/next"), post() + b"\r\n"], ids=["one", "pipelined", "line"])
@pytest.mark.parametrize("leave", LEAVE_TLS)
async def test_a_hang_up_cancels_the_request(leave: str, before: bytes, stream: bool) -> None:
    probe = Probe(stream=stream)
    async with serving_tls(scoped(probe)) as site:
        client = await secured(site)
        client.write(before)
        await probe.entered.wait()
        if stream:
            await client.read_until(b"begun")
        LEAVE_TLS[leave](client)
        await everything_ends(site, probe)
    assert probe.closing.reason == reason_for(leave)
    assert probe.closing.error is None


@pytest.mark.parametrize("leave", LEAVE_TLS)
async def test_a_hang_up_inside_the_body_is_one_line_of_the_log(leave: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving_tls(scoped(Probe())) as site:
        client = await secured(site)
        client.write(
            b"POST / HTTP/1.1\r\nhost: x\r\nx-request-id: half\r\ncontent-length: 99\r\nexpect: 100-continue\r\n\r\n"
        )
        await client.read_until(b"\r\n\r\n")
        client.write(b"half")
        LEAVE_TLS[leave](client)
        await site.server.count_falls_to(0)
    (record,) = caplog.records
    assert is_cancel_in_body(record, "half", reason_for(leave))


@pytest.mark.parametrize("sent", ["nothing", "half a ClientHello", "a ClientHello"])
@pytest.mark.parametrize("leave", ["close", "reset", "half-close"])
async def test_a_hang_up_in_the_handshake_leaves_nothing(
    leave: str, sent: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_tls(scoped(hello), ServerLimits(keep_alive_timeout=1000)) as site:
        client = connect(site)
        hello_bytes = client.begin()
        client.sock.sendall({"nothing": b"", "half a ClientHello": hello_bytes[:100]}.get(sent, hello_bytes))
        if sent == "a ClientHello":
            await anyio.wait_readable(client.sock)
        LEAVE_TLS[leave](client)
        await site.server.count_falls_to(0)
    assert not caplog.records


async def test_a_client_that_stops_reading_is_cancelled() -> None:
    flood = Flood()
    async with serving_tls(scoped(flood), ServerLimits(write_timeout=0.1)) as site:
        client = await secured(site, receive_buffer=4096)
        client.write(get())
        await flood.cancelled.wait()
        await site.server.count_falls_to(0)
        assert await client.is_closed()
        assert not client.close_notified
    assert flood.closing.reason == "client stopped reading"


async def test_a_cancelled_request_does_not_wait_for_its_reader() -> None:
    flood = Flood()
    async with serving_tls(scoped(flood, request_timeout=0.1)) as site:
        client = await secured(site, receive_buffer=4096)
        client.write(get())
        await flood.cancelled.wait()
        await site.server.count_falls_to(0)
    assert flood.closing.reason == "the request's deadline passed"


async def test_bytes_that_are_not_tls_end_the_request() -> None:
    probe = Probe(stream=True)
    async with serving_tls(scoped(probe)) as site:
        client = await secured(site)
        client.write(get())
        await client.read_until(b"begun")
        client.sock.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        await everything_ends(site, probe)
    assert probe.closing.reason == "client broke the protocol"


async def test_a_sender_that_ignores_the_hang_up_starves_no_other_stream() -> None:
    async def ignorant(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/neighbour":
            await ticker(scope, receive, send)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    async with serving_tls(ignorant, ServerLimits(grace=0, close_timeout=0)) as site:
        client = await secured(site)
        client.write(get())
        await client.read_until(b"x")
        client.reset()
        neighbour = await secured(site)
        neighbour.write(get("/neighbour"))
        for number in range(5):
            await neighbour.read_until(b"%d\n" % number)


async def test_a_hang_up_between_requests_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving_tls(scoped(hello)) as site:
        client = await secured(site)
        client.write(post())
        assert (await client.answer()).body == b"/ {}"
        client.sock.shutdown(socket.SHUT_WR)
        await site.server.count_falls_to(0)
    assert not caplog.records
