"""One body, whatever is in it, does not stop other clients."""

import anyio
import anyio.to_thread
import pytest

from gateway.preparation import jobs
from tests.attacks.bodies import BODIES, Body
from tests.attacks.watched import attacked
from tests.failures.processes import needs_proc
from tests.repeat import TIMES, thorough
from tests.system.served import GUARD

pytestmark = [pytest.mark.anyio, thorough, needs_proc]

SIZE = min(1_900_000 * TIMES, 8_300_000)
"""Bytes of a body. The default limit is 8 MiB."""


def post(path: str, make: Body) -> bytes:
    body = make(SIZE)
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def test_costly_bodies_do_not_hold_the_event_loop(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_SECONDS", GUARD)  # on a busy machine a worker takes longer than it may
    async with attacked(anyio_backend) as target:
        for name, (path, make) in BODIES.items():
            request = await anyio.to_thread.run_sync(post, path, make)  # not on the loop, whose steps are measured
            with anyio.fail_after(GUARD):
                answer = await target.served.answer(request)
            assert answer.status in {200, 400}, (name, answer)
            await target.neighbour.more()
            target.check(name)
