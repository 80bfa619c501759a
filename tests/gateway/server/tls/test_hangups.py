"""Hang-ups of TLS clients: detected at once, in every form and in every phase."""

import socket

import anyio
import pytest

from gateway.server.limits import ServerLimits
from tests.backends import TRIO_FIRST
from tests.gateway.server.apps import Probe, hello, scoped
from tests.gateway.server.sockets import get, post
from tests.gateway.server.test_hangups import everything_ends
from tests.gateway.server.tls.clients import LEAVE_TLS, connect, secured, serving_tls
from tests.repeat import every_case

pytestmark = [pytest.mark.anyio, every_case, pytest.mark.parametrize("anyio_backend", TRIO_FIRST)]


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


async def test_bytes_that_are_not_tls_end_the_request() -> None:
    probe = Probe(stream=True)
    async with serving_tls(scoped(probe)) as site:
        client = await secured(site)
        client.write(get())
        await client.read_until(b"begun")
        client.sock.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        await everything_ends(site, probe)
    assert probe.closing.reason == "client broke the protocol"


async def test_a_hang_up_between_requests_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving_tls(scoped(hello)) as site:
        client = await secured(site)
        client.write(post())
        assert (await client.answer()).body == b"/ {}"
        client.sock.shutdown(socket.SHUT_WR)
        await site.server.count_falls_to(0)
    assert not caplog.records
