"""A gateway under attack, with a neighbour: a client that streams all the time and must not notice.

A wall clock would measure the other processes of the machine, too. So the neighbour's gap is counted in its causes:
passes of the gateway's loop in CPU time, steps of the engine, and CPU time of the engine.
"""

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import anyio
import orjson

from engine import Engine
from engine.client.exchange import Exchange
from engine.events import Event
from tests.attacks.loop_steps import LoopSteps, watch_steps
from tests.engine.driver import continuation
from tests.failures.processes import cpu_seconds
from tests.gateway.server.sockets import Client
from tests.system.served import GUARD, Served, completion, serving

LONGEST_STEP = 0.05
"""CPU seconds for which one step may hold the event loop. The aim is 20 ms; the rest is for slow processors."""
LONGEST_PASS = 0.15
"""CPU seconds from one look of the event loop at its sockets to the next."""
STEPS_PER_TOKEN = 3
"""Steps of the engine for a token of the neighbour: its own, one for prompts, and one for embeddings."""
ENGINE_SECONDS = 0.1
"""CPU seconds of the engine, in all its threads, for a token of the neighbour."""
NEIGHBOUR = 1
"""Key of the neighbour in the engine's frames: its request is the first."""
PROMPT = "The neighbour: "
EVENT = re.compile(rb"^data: (\{.*\})\n", re.MULTILINE)
MARK = b"data: {"


@dataclass
class Gaps:
    """The largest gap between two tokens of the neighbour, in work of the engine."""

    engine: Engine = field(repr=False)
    pid: int
    """Process id of the engine."""
    steps: int = 0
    """Steps of the engine from one token to the next."""
    seconds: float = 0.0
    """CPU seconds of the engine, divided by the tokens that arrived together."""
    _steps_before: int = 0
    _seconds_before: float = 0.0

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Measure inside the context. Steps are counted where their frames arrive: no token is on its way there."""
        self._steps_before, self._seconds_before = self._steps(), cpu_seconds(self.pid)
        self.seconds = 0.0
        deliver = Exchange.deliver

        def counted(exchange: Exchange, events: Iterable[tuple[int, Event]], patient: float, *, last: bool) -> None:
            delivered = list(events)
            if any(key == NEIGHBOUR for key, _ in delivered):
                self.steps = max(self.steps, self._steps() - self._steps_before)
                self._steps_before = self._steps()
            deliver(exchange, delivered, patient, last=last)

        with patch.object(Exchange, "deliver", counted):
            yield

    def arrived(self, tokens: int) -> None:
        """Record that so many tokens have reached the neighbour together."""
        seconds = cpu_seconds(self.pid)
        self.seconds = max(self.seconds, (seconds - self._seconds_before) / tokens)
        self._seconds_before = seconds

    def _steps(self) -> int:
        metrics = self.engine.metrics
        assert metrics is not None
        return metrics.steps


def unchunked(response: bytes) -> bytes:
    """Return the body of a response as far as it has come. An event may be in two chunks of the transfer coding."""
    _head, _, rest = response.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, found, rest = rest.partition(b"\r\n")
        if not found:
            break
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


@dataclass
class Neighbour:
    """A client of the fake model that reads an endless stream."""

    client: Client
    gaps: Gaps
    tokens: int = 0
    """Number of events that have arrived."""
    _received: bytearray = field(default_factory=bytearray)
    _waiters: list[tuple[int, anyio.Event]] = field(default_factory=list)

    @property
    def text(self) -> str:
        events = [orjson.loads(event) for event in EVENT.findall(unchunked(bytes(self._received)))]
        return "".join(choice["text"] for event in events for choice in event["choices"])

    async def read(self) -> None:
        """Read until the stream is cancelled. Raises `AssertionError` if it ends by itself."""
        while data := await self.client.receive():
            behind = max(0, len(self._received) - len(MARK) + 1)  # a mark may have come in two pieces
            self._received += data
            if tokens := self._received.count(MARK, behind):
                self.tokens += tokens
                self.gaps.arrived(tokens)
            for count, reached in self._waiters:
                if self.tokens >= count:
                    reached.set()
        raise AssertionError(f"the neighbour's stream ended: {self._received[-300:]!r}")

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

    def check(self, attack: str = "") -> None:
        """Check that neither the loop nor the engine has left the neighbour waiting."""
        assert self.steps.longest < LONGEST_STEP, (attack, self.steps)
        assert self.steps.longest_pass < LONGEST_PASS, (attack, self.steps)
        assert 0 < self.neighbour.gaps.steps <= STEPS_PER_TOKEN, (attack, self.neighbour.gaps)
        assert self.neighbour.gaps.seconds < ENGINE_SECONDS, (attack, self.neighbour.gaps)


@asynccontextmanager
async def attacked(backend: str, **fields: Any) -> AsyncIterator[Attacked]:
    """Serve the fake model while a neighbour streams. On leaving, the neighbour must have noticed nothing.

    Every slot is free then, and no request runs or waits.
    """
    async with serving(seconds_per_pass=0.005, pooled=True, **fields) as served:
        neighbour = Neighbour(served.client(), Gaps(served.engine, served.engine_pid))
        request = completion("neighbour", prompt=PROMPT, max_tokens=60_000, stream=True, ignore_eos=True)
        async with anyio.create_task_group() as tasks:
            await neighbour.client.send(request)
            tasks.start_soon(neighbour.read)
            await neighbour.more()
            with watch_steps(backend) as steps, neighbour.gaps.watch():
                target = Attacked(served, neighbour, steps)
                yield target
                await neighbour.more()
            tasks.cancel_scope.cancel()
        target.check()
        assert neighbour.text == continuation(PROMPT, len(neighbour.text))
        neighbour.client.close()
        await served.until_idle()
