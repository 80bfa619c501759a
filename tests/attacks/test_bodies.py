"""One body, whatever is in it, does not stop other clients."""

import anyio
import pytest

from tests.attacks.bodies import BODIES
from tests.attacks.watched import LONGEST_STEP, attacked
from tests.repeat import TIMES, repeated
from tests.system.served import GUARD

pytestmark = [pytest.mark.anyio, repeated]

SIZE = min(1_900_000 * TIMES, 8_300_000)
"""Bytes of a body. The default limit is 8 MiB."""


def post(path: str, body: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def test_costly_bodies_do_not_hold_the_event_loop(anyio_backend: str) -> None:
    async with attacked(anyio_backend) as target:
        for name, (path, body) in BODIES.items():
            with anyio.fail_after(GUARD):
                answer = await target.served.answer(post(path, body(SIZE)))
            assert answer.status in {200, 400}, (name, answer)
            await target.neighbour.more()
            assert target.steps.longest < LONGEST_STEP, (name, target.steps)
