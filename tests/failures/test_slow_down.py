"""Group 5, a slow-down: six equal requests took 0.9 s, 2.7 s, … 8.3 s, because state outlived its request.

The hundredth equal request costs what the first did: tokens computed, steps, frames, bytes, memory. Counted, not
timed.
"""

import gc
import os
from collections import Counter
from dataclasses import dataclass

import anyio
import pytest

from engine.info import EngineMetrics
from engine.protocol.messages import Message, Step, Working
from tests.failures.processes import needs_proc, resident_bytes
from tests.repeat import TIMES, thorough
from tests.system.answers import STREAMED
from tests.system.frames import NO_FIGURES, size, watch_frames
from tests.system.served import Served, completion, serving

pytestmark = [pytest.mark.anyio, pytest.mark.long, thorough]

SETTLED, REQUESTS = 50, 100 * min(TIMES, 2)
GUARD = 120.0
BODY = {"prompt": "Once upon a time there was a little girl. " * 8, "max_tokens": 5, "user": "x" * 32_000, **STREAMED}
GATEWAY_GROWTH, ENGINE_GROWTH = 1 << 20, 1 << 19
"""Bytes that a process may grow by while it answers `REQUESTS`. Requests that kept their state would keep at least
their bodies in the gateway, 3.2 MB of 100, and their prompts' tokens in the engine, 0.75 MB of 200. The allowance is
for the deadlines that event loops remove only when a thousand have passed, and for the allocators' own room."""

Cost = tuple[int, ...]


@dataclass
class Work:
    """The frames between the processes since the start, and the engine's work at that time."""

    frames_sent: int = 0
    bytes_sent: int = 0
    frames_received: int = 0
    bytes_received: int = 0
    metrics: EngineMetrics = NO_FIGURES

    def note_sent(self, message: Message) -> None:
        self.frames_sent += 1
        self.bytes_sent += size(message)

    def note_received(self, message: Message) -> None:
        if isinstance(message, Working):  # it comes once a second
            return
        self.frames_received += 1
        self.bytes_received += size(message)
        if isinstance(message, Step):
            self.metrics = message.metrics

    def cost(self) -> Cost:
        crossed = (self.frames_sent, self.bytes_sent, self.frames_received, self.bytes_received)
        return (*crossed, self.metrics.steps, self.metrics.rows_decoded, self.metrics.prompt_tokens)


async def run(served: Served, work: Work, requests: int, *, cache: bool) -> list[Cost]:
    """Send equal requests one after another, each on a new connection; return the cost of each."""
    costs = []
    for _ in range(requests):
        before = work.cost()
        answer = await served.answer(completion("equal", cache_prompt=cache, **BODY))
        assert answer.status == 200
        after = (*work.cost(), len(answer.body))
        costs.append(tuple(now - then for now, then in zip(after, (*before, 0), strict=True)))
    return costs


async def settle(served: Served) -> None:
    """Wait until all work is done, and no suspended task holds a reference to it."""
    await served.server.count_falls_to(0)
    await served.until_idle()
    await anyio.wait_all_tasks_blocked()
    gc.collect()


def live_objects() -> Counter[str]:
    """Return the number of objects of each class of ours in this process, which is the gateway's."""
    names = (f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.get_objects())
    return Counter(name for name in names if name.startswith(("engine.", "gateway.")))


@needs_proc
@pytest.mark.parametrize("cache", [False, True], ids=["computed each time", "resident from the second on"])
async def test_equal_requests_cost_the_same_each(monkeypatch: pytest.MonkeyPatch, cache: bool) -> None:
    work = Work()
    watch_frames(monkeypatch, work.note_sent, work.note_received)
    async with serving(slots=4, threads=1, grace=0.0) as served:
        with anyio.fail_after(GUARD):
            costs = await run(served, work, SETTLED, cache=cache)
            await settle(served)
            objects, gateway, engine = live_objects(), resident_bytes(os.getpid()), resident_bytes(served.engine_pid)
            costs += await run(served, work, REQUESTS, cache=cache)
            await settle(served)
        assert live_objects() == objects
        assert resident_bytes(os.getpid()) - gateway < GATEWAY_GROWTH
        assert resident_bytes(served.engine_pid) - engine < ENGINE_GROWTH
    assert len(set(costs[1:])) == 1, "the first prompt has a step more, which measures the speed"
    assert all(amount > 0 for amount in costs[0])
