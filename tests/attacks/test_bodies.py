"""One body, whatever is in it, stops nobody else."""

import anyio
import pytest

from tests.attacks.bodies import BODIES
from tests.attacks.watched import attacked
from tests.repeat import TIMES, repeated
from tests.system.served import GUARD

pytestmark = [pytest.mark.anyio, repeated]

SIZE = min(1_900_000 * TIMES, 8_300_000)
"""Bytes of a body. The default limit is 8 MiB."""


def post(path: str, body: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("name", BODIES)
async def test_a_costly_body_does_not_hold_the_event_loop(anyio_backend: str, name: str) -> None:
    path, body = BODIES[name]
    request = post(path, body(SIZE))
    async with attacked(anyio_backend) as target:
        with anyio.fail_after(GUARD):
            answer = await target.served.answer(request)
        assert answer.status in {200, 400}, answer
