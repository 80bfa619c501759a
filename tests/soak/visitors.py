"""Clients that stay, leave at random, or read slowly. Each request that stays must have exactly one outcome."""

import contextlib
import itertools
import random
import ssl
from collections import Counter
from dataclasses import replace

import anyio
import anyio.lowlevel
import h11

from tests.gateway.server.sockets import LEAVE, Client
from tests.gateway.server.tls.clients import LEAVE_TLS, TlsClient
from tests.soak.requests import Asked, check, random_request
from tests.soak.target import GUARD, KEY, Target, with_key

REFUSED_KEYS = frozenset({401, 403, 429})
"""Statuses for a key that is wrong or revoked, that may not use a model, or that has reached a limit."""
LONGEST_STAY = 0.6
"""Seconds after which a client that leaves has left."""
STALL = 4.0
"""Seconds for which a client does not read: longer than the server's patience."""
SLOW_READS = 20
"""Reads of a slow reader, each after a pause."""


class Visitors:
    """Random clients of one server, and what became of their requests."""

    def __init__(self, target: Target, seed: str) -> None:
        self.outcomes: Counter[str] = Counter()
        """Outcomes of all requests."""
        self.violations: list[str] = []
        """Requests without the one outcome that they must have."""
        self._target = target
        self._seed = seed
        self._stopped = False

    def stop(self) -> None:
        """Send no more requests. Those on their way are read to their end."""
        self._stopped = True

    async def visit(self, number: int) -> None:
        """Send one request after another, until stopped."""
        rng = random.Random(f"{self._seed} {number}")
        for turn in itertools.count():
            if self._stopped:
                return
            asked = self._with_some_key(random_request(rng, f"{self._seed}-{number}-{turn}"), rng)
            try:
                self.outcomes[await self._ask(asked, rng)] += 1
            except (AssertionError, OSError, TimeoutError, h11.RemoteProtocolError) as error:
                self.violations.append(f"{asked.name} ({self._seed}-{number}-{turn}): {error!r}")
            await anyio.lowlevel.checkpoint()

    def _with_some_key(self, asked: Asked, rng: random.Random) -> Asked:
        """Return the request with the key that stays, or with the one that comes and goes."""
        if rng.random() < 0.7:
            return replace(asked, data=with_key(asked.data, KEY))
        statuses = asked.statuses | REFUSED_KEYS
        return replace(asked, data=with_key(asked.data, self._target.changing_key), statuses=statuses)

    async def _ask(self, asked: Asked, rng: random.Random) -> str:
        (behaviour,) = rng.choices(
            [self._stay, self._leave, self._read_slowly, self._stall, self._babble], [8, 5, 1, 1, 1]
        )
        client = self._target.raw_client() if behaviour == self._babble else await self._target.client(rng)
        try:
            with anyio.fail_after(GUARD):
                return await behaviour(client, asked, rng)
        finally:
            client.close()

    async def _stay(self, client: Client, asked: Asked, _rng: random.Random) -> str:
        await self._send_all(client, asked.data)
        return check(asked, await client.answer())

    async def _send_all(self, client: Client, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before its end; the answer is there
            await client.send(data)

    async def _leave(self, client: Client, asked: Asked, rng: random.Random) -> str:
        sent = len(asked.data) if rng.random() < 0.8 else rng.randrange(len(asked.data))
        await self._send_all(client, asked.data[:sent])
        with anyio.move_on_after(rng.uniform(0, LONGEST_STAY)), contextlib.suppress(OSError):
            await client.read_to_end()
        ways = LEAVE_TLS if isinstance(client, TlsClient) else LEAVE
        with contextlib.suppress(OSError):  # the server may have closed first
            ways[rng.choice(list(ways))](client)
        if client.is_open:
            with contextlib.suppress(OSError, ssl.SSLError):
                await client.read_to_end()
        return "left"

    async def _read_slowly(self, client: Client, asked: Asked, rng: random.Random) -> str:
        await self._send_all(client, asked.data)
        for _ in range(SLOW_READS):
            await anyio.sleep(rng.uniform(0, 0.05))
            with anyio.move_on_after(0.01):
                client._received += await client.receive()
        return check(asked, await client.answer())

    async def _stall(self, client: Client, asked: Asked, _rng: random.Random) -> str:
        """Read nothing for longer than the server allows. It may answer, or cut the connection."""
        await self._send_all(client, asked.data)
        await anyio.sleep(STALL)
        with contextlib.suppress(OSError, h11.RemoteProtocolError, AssertionError):
            await client.answer()
        return "stalled"

    async def _babble(self, client: Client, asked: Asked, rng: random.Random) -> str:
        """Send something other than TLS to the port for it: HTTP, bytes at random, or nothing."""
        data = rng.choice([asked.data, rng.randbytes(rng.randrange(3000)), b"\x16\x03\x01\x02\x00\x01", b""])
        await self._send_all(client, data)
        client.half_close()
        await client.read_to_the_close()
        return "no TLS"
