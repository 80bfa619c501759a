"""A gateway under attack, with a neighbour: a client that streams all the time and must not notice."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import orjson

from tests.attacks.loop_steps import LoopSteps, watch_steps
from tests.gateway.server.sockets import Client
from tests.system.served import GUARD, Served, completion, continuation, serving

LONGEST_STEP = 0.1
"""CPU seconds for which one step may hold the event loop. The aim is 20 ms; the rest is for slow processors."""
PROMPT = "The neighbour: "
EVENT = re.compile(rb"^data: (\{.*\})\n", re.MULTILINE)


@dataclass
class Neighbour:
    """A client of the fake model that reads an endless stream."""

    client: Client
    received: bytes = b""
    _waiters: list[tuple[int, anyio.Event]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Number of events that have arrived."""
        return self.received.count(b"data: {")

    @property
    def text(self) -> str:
        chunks = [orjson.loads(event) for event in EVENT.findall(self.received)]
        return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])

    async def read(self) -> None:
        """Read until the stream is cancelled. Raises `AssertionError` if it ends by itself."""
        while data := await self.client.receive():
            self.received += data
            for count, reached in self._waiters:
                if self.tokens >= count:
                    reached.set()
        raise AssertionError(f"the neighbour's stream ended: {self.received[-300:]!r}")

    async def more(self, tokens: int = 3) -> None:
        """Wait for further tokens."""
        reached = anyio.Event()
        self._waiters.append((self.tokens + tokens, reached))
        with anyio.fail_after(GUARD):
            await reached.wait()


@dataclass
class Attacked:
    """A gateway, its neighbour, and the steps of its event loop."""

    served: Served
    neighbour: Neighbour
    steps: LoopSteps


@asynccontextmanager
async def attacked(backend: str, **fields: Any) -> AsyncIterator[Attacked]:
    """Serve the fake model while a neighbour streams. On leaving, the neighbour must have noticed nothing.

    Every slot is free then, and no request runs or waits.
    """
    async with serving(seconds_per_pass=0.005, pooled=True, **fields) as served:
        neighbour = Neighbour(served.client())
        request = completion("neighbour", prompt=PROMPT, max_tokens=60_000, stream=True, ignore_eos=True)
        async with anyio.create_task_group() as tasks:
            await neighbour.client.send(request)
            tasks.start_soon(neighbour.read)
            await neighbour.more()
            with watch_steps(backend) as steps:
                yield Attacked(served, neighbour, steps)
                await neighbour.more()
            tasks.cancel_scope.cancel()
        assert neighbour.text == continuation(PROMPT, len(neighbour.text))
        neighbour.client.close()
        await served.until_idle()
        assert steps.longest < LONGEST_STEP, steps
