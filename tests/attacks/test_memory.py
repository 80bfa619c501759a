"""The gateway's memory for an attack is bounded by the bytes that the attacker has sent."""

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import anyio
import pytest

from tests.attacks.bodies import BODIES
from tests.attacks.test_connections import ATTACKS, CONNECTIONS, Attack
from tests.backends import ON_ASYNCIO
from tests.failures.processes import needs_proc, peak_bytes, reset_peak, resident_bytes
from tests.gateway.server.sockets import Client
from tests.repeat import thorough
from tests.system.served import GUARD

pytestmark = [pytest.mark.anyio, ON_ASYNCIO, thorough, needs_proc]

SIZE = 8_000_000
"""Bytes of a body. The default limit is 8 MiB."""
FACTOR = 4
"""Bytes of the gateway's memory for each byte of a body, as documented."""
ROOM = 4 << 20
"""Bytes that allocators keep."""
ROOM_PER_CONNECTION = 1 << 19
"""Bytes that a connection takes without a body: buffers of both directions, and the objects of a request."""
LASTING = ("an unknown field of arrays", "long prompts", "wrong inputs", "token ids", "nested arrays")
"""Bodies that reach the gateway's own code, by their result or their error. The others end in a worker, as these do."""


async def post(port: int, path: str, body: bytes) -> int:
    client = Client(port)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    with anyio.fail_after(GUARD):
        await client.send(head.encode())
        await client.send(body)
        status = (await client.answer()).status
    client.close()
    return status


@dataclass
class Peak:
    """The most memory that a gateway has taken since an attack began."""

    pid: int
    before: int = field(init=False)

    def __post_init__(self) -> None:
        self.before = resident_bytes(self.pid)
        reset_peak(self.pid)

    @property
    def growth(self) -> int:
        return peak_bytes(self.pid) - self.before


class Counting(Client):
    """A client that counts its bytes."""

    sent = 0

    async def send(self, data: bytes) -> None:
        self.sent += len(data)
        await super().send(data)


async def attack_and_leave(client: Client, attack: Attack) -> None:
    """Attack, and end with FIN, which the server sees behind all other bytes. Wait until it has closed."""
    await attack(client)
    with suppress(OSError):  # the server has closed first
        client.half_close()
    await client.read_to_the_close()


@pytest.mark.parametrize("name", LASTING)
async def test_a_body_takes_at_most_four_times_its_bytes(gateway: tuple[int, int], name: str) -> None:
    port, pid = gateway
    path, make = BODIES[name]
    body = make(SIZE)
    await post(port, path, b"{}")  # what the first request of an endpoint takes stays
    peak = Peak(pid)
    assert await post(port, path, body) in {200, 400, 413}
    assert peak.growth < FACTOR * len(body) + ROOM


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_connections_take_at_most_four_times_their_bytes(gateway: tuple[int, int], attack: Attack) -> None:
    port, pid = gateway
    await post(port, "/v1/completions", b"{}")  # what the first request takes stays
    with ExitStack() as closing_clients:
        clients = [Counting(port) for _ in range(CONNECTIONS)]
        for client in clients:
            closing_clients.callback(client.close)
        peak = Peak(pid)
        with anyio.fail_after(GUARD):
            async with anyio.create_task_group() as tasks:
                for client in clients:
                    tasks.start_soon(attack_and_leave, client, attack)
        sent = sum(client.sent for client in clients)
        assert peak.growth < FACTOR * sent + ROOM + CONNECTIONS * ROOM_PER_CONNECTION
