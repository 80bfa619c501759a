"""A reader of the log that stops reading holds up neither the gateway nor the engine."""

import fcntl
from contextlib import closing

import anyio
import pytest

from tests.backends import ON_ASYNCIO, TRIO_FIRST
from tests.gateway.metrics.scraped import scrape
from tests.gateway.server.sockets import Client, get
from tests.program import GUARD, serving_embedded
from tests.system.served import completion

pytestmark = pytest.mark.anyio

CANCELLATIONS = "llama_gateway_cancellations_total"
PIPE = 4096
"""Bytes of the smallest pipe."""
REQUESTS = 20
"""Their log lines are longer than the pipe, those of the engine alone, too."""


async def ask(port: int, request: bytes) -> bytes:
    with closing(Client(port)) as client:
        await client.send(request)
        answer = await client.answer()
        assert answer.status == 200
        return answer.body


@ON_ASYNCIO
@pytest.mark.parametrize("backend", TRIO_FIRST)
async def test_the_program_answers_cancels_and_stops_while_its_log_is_not_read(backend: str) -> None:
    with serving_embedded("--log-level", "debug", "--slots", "1", "--async-backend", backend) as served:
        assert served.process.stderr is not None
        fcntl.fcntl(served.process.stderr, fcntl.F_SETPIPE_SZ, PIPE)
        port = int(served.root.rpartition(":")[2])
        with anyio.fail_after(GUARD):
            for _ in range(REQUESTS):
                await ask(port, completion("answered", max_tokens=1))
            while not scrape(await ask(port, get("/metrics"))).value(CANCELLATIONS, cause="client_left"):
                with closing(Client(port)) as client:  # which may be so late that its stream has ended
                    await client.send(completion("cancelled", max_tokens=400, ignore_eos=True, stream=True))
                    await client.see(b'"text":"')
                await ask(port, completion("after the cancel", max_tokens=1))
            served.process.terminate()
            assert await anyio.to_thread.run_sync(served.process.wait) == 0
