"""Requests with random faults: each is answered or its connection is closed, no exception is logged, none is lost."""

import random
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

from tests.gateway.server.apps import hello, scoped
from tests.gateway.server.sockets import Client, get, listen, post, serving
from tests.repeat import TIMES, thorough

pytestmark = [pytest.mark.anyio, thorough]

SEEDS = 10 * TIMES
REQUESTS = 40
"""Faulty requests of one seed, each on a connection of its own."""
CHUNKED = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nt: u\r\n\r\n"
VALID = (get(), get("/a?b=c", "x: y\r\n"), post(b"abc"), CHUNKED, post(b"", "connection: close\r\n"), get() * 2)
PIECES = (
    *(b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b"\xff", b":", b",", b";"),
    *(b"0", b"-1", b"+3", b"0x3", b"1_0", b"f" * 20, b"chunked, ", b", chunked"),
    *(b"content-length: 3\r\n", b"content-length: 0\r\n", b"transfer-encoding: chunked\r\n"),
    *(b"host: other\r\n", b"connection: close\r\n", b"expect: 100-continue\r\n", b"upgrade: h2c\r\n", b" folded\r\n"),
    *(b"http://[::1/", b"*", b"HTTP/1.0", b"HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    *(b"x" * 5_000, b"a: b\r\n" * 200),
)


def with_faults(chance: random.Random) -> bytes:
    """Return a valid request, or two, with pieces inserted, removed, repeated and moved."""
    data = chance.choice(VALID)
    for _ in range(chance.randint(1, 4)):
        begin, end = sorted(chance.choices(range(len(data) + 1), k=2))
        match chance.randrange(4):
            case 0:
                data = data[:begin] + chance.choice(PIECES) + data[begin:]
            case 1:
                data = data[:begin] + data[min(end, begin + 8) :]
            case 2:
                data = data[:end] + data[begin:end] + data[end:]
            case _:
                data = data[:begin] + chance.choice(PIECES) + data[end:]
    return data


async def send_in_pieces(client: Client, data: bytes, chance: random.Random) -> None:
    cuts = sorted(chance.choices(range(len(data) + 1), k=chance.randint(0, 3)))
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        await client.send(data[begin:end])
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_faulty_requests_are_answered_or_closed(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(seed)
    async with serving(scoped(hello), listener=listen(backlog=REQUESTS)) as site:
        for _ in range(REQUESTS):
            client = site.client()
            with suppress(OSError):  # the server may have closed first
                await send_in_pieces(client, with_faults(chance), chance)
                client.half_close()
                assert await client.is_closed()
            client.close()
        await site.server.count_falls_to(0)
        assert (await site.ask(post(b"still here"))).body == b"/ still here"
    assert not caplog.records, [record.getMessage() for record in caplog.records]
