"""Many clients with random invalid input and random hang-ups."""

import contextlib
import random

import anyio
import anyio.lowlevel
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.server.limits import ServerLimits
from tests.backends import TRIO_FIRST
from tests.gateway.server.apps import Probe, hello, scoped, ticker
from tests.gateway.server.sockets import LEAVE, Site, get, listen, post, serving

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", TRIO_FIRST)]

TASKS, CLIENTS = 20, 20
PIECES = [get("/tick"), get("/wait"), post(b"x" * 5000), b"\r\n", b"junk\r\n\r\n", post()[:20]]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    handlers: dict[str, ASGIApp] = {"/tick": ticker, "/wait": Probe()}
    handler = handlers.get(scope["path"], hello)
    await handler(scope, receive, send)


async def misbehave(site: Site, rng: random.Random) -> None:
    for _ in range(CLIENTS):
        client = site.client()
        with contextlib.suppress(OSError):  # the server may have closed first
            for _ in range(rng.randint(1, 4)):
                await client.send(rng.choice(PIECES))
                for _ in range(rng.randint(0, 5)):
                    await anyio.lowlevel.checkpoint()
            LEAVE[rng.choice(list(LEAVE))](client)
        client.close()


@pytest.mark.parametrize("seed", range(3))
async def test_random_clients_leave_no_connection_behind(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(scoped(app), ServerLimits(grace=0), listen(backlog=TASKS * CLIENTS)) as site:
        async with anyio.create_task_group() as tasks:
            for number in range(TASKS):
                tasks.start_soon(misbehave, site, random.Random(seed * TASKS + number))
        await site.server.count_falls_to(0)
        assert (await site.ask(post(b"still here"))).body == b"/ still here"
    assert not caplog.records
