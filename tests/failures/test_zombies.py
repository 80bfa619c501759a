"""Group 1, zombies: the HTTP response was complete, and the batch went on decoding rows without a reader.

When no request is open the engine is asleep: no pass, no frame, no log line, no active KV, no CPU.
"""

import logging
import os
from collections.abc import Awaitable, Callable

import anyio
import pytest

from tests.failures.processes import cpu_ticks, needs_proc
from tests.gateway.server.sockets import LEAVE
from tests.system.frames import watch_frames
from tests.system.served import GUARD, Served, ask, completion, serving

pytestmark = [pytest.mark.anyio, needs_proc]

IDLE = 0.4
"""Seconds without any activity."""
PAUSE = 0.05
"""Seconds: some clock ticks."""
MANY = 2000

Visit = Callable[[Served], Awaitable[int]]


async def nobody(_served: Served) -> int:
    return 0


async def answered(served: Served) -> int:
    await ask(served, max_tokens=5)
    await ask(served, max_tokens=5, n=6)
    await ask(served, max_tokens=5, prompt=["a", "b"], cache_prompt=False)
    return 9


async def left_in_the_middle(served: Served) -> int:
    """Start streams and whole answers side by side; their clients all leave at once, each in its own way."""
    leaving = []
    for way, leave in LEAVE.items():
        for stream in (True, False):
            client = served.client()
            await client.send(completion(f"{way} {stream}", max_tokens=MANY, stream=stream))
            leaving.append((client, leave))
    await served.until(lambda slots, _: all(slot.state == "decode" for slot in slots[: len(leaving)]))
    for client, leave in leaving:
        leave(client)
    with anyio.fail_after(GUARD):
        await served.server.count_falls_to(0)
    for client, _ in leaving:
        client.close()
    return len(leaving)


async def heard(capfd: pytest.CaptureFixture[str], line: str, times: int) -> None:
    """Wait until the engine process has written so many of these lines."""
    text = ""
    with anyio.fail_after(GUARD):
        while True:
            text += capfd.readouterr().err
            if text.count(line) == times:
                return
            await anyio.sleep(0.001)


async def at_rest(pid: int) -> int:
    """Wait until a process does not compute; return its clock ticks. OpenMP's threads spin a little after each pass."""
    with anyio.fail_after(GUARD):
        while True:
            before = cpu_ticks(pid)
            await anyio.sleep(PAUSE)
            if cpu_ticks(pid) == before:
                return before


@pytest.mark.parametrize("visit", [nobody, answered, left_in_the_middle])
async def test_an_engine_without_a_request_sleeps(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    frames: list[object] = []
    watch_frames(monkeypatch, frames.append, frames.append)
    caplog.set_level(logging.DEBUG)
    async with serving(slots=6, context=2048, log_level="debug") as served:
        await heard(capfd, "sequence ended", await visit(served))
        before = await served.until_idle()
        for log in (frames, caplog):
            log.clear()
        processes = (served.engine_pid, os.getpid())
        ticks = [await at_rest(pid) for pid in processes]
        capfd.readouterr()  # lines of the start, which a thread writes
        await anyio.sleep(IDLE)
        used = [cpu_ticks(pid) - then for pid, then in zip(processes, ticks, strict=True)]
        assert max(used) <= 1
        assert frames == []
        assert (capfd.readouterr().err, caplog.records) == ("", [])
        assert await served.metrics() == before
        assert (before.active_tokens, before.waiting, before.held) == (0, 0, 0)
