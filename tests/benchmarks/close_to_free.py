#!/usr/bin/env python3
"""The time from a client's close of its connection until its slot is free, measured from outside by `GET /slots`.

    python -m tests.benchmarks.close_to_free --model MODEL.gguf [--rounds 20] [--neighbours 0,1,4] [--context 4096]
        [--prompt-words 2000] [--new 200] [--linger 0.3]

Starts a server of its own. Each round sends one request under an id of its own, waits until its slot is in the phase
asked for, closes the socket, and reads the slots until the request has none. The overhead of polling is printed beside
it, as the time of one `GET /slots`. For a fast device, prompts and answers must be longer, and the linger shorter.
"""

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.serving import GUARD, quantile, request_to, serving

WORDS = "time people way water day part sound work place year back thing name sentence man line boy farm end kind"


def prompt(words: int, seed: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS.split()) for _ in range(words))


class Slots:
    """Reads the slots over one kept-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> "Slots":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def get(self) -> list[dict[str, Any]]:
        self._writer.write(b"GET /slots HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        slots: list[dict[str, Any]] = json.loads(await self._reader.readexactly(length))
        return slots

    async def state(self, request_id: str) -> str | None:
        """The state of a request's slot; None once it holds none."""
        return next((slot["state"] for slot in await self.get() if slot["request_id"] == request_id), None)

    async def until(self, request_id: str, state: str | None) -> None:
        async with asyncio.timeout(GUARD):
            while await self.state(request_id) != state:  # noqa: ASYNC110 - a server is all there is to ask
                await asyncio.sleep(0.001)


async def send(port: int, request_id: str, **body: Any) -> asyncio.StreamWriter:
    """Send a completion request and leave its answer unread in the kernel."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    asked = {"temperature": 0, "ignore_eos": True, **body}
    writer.write(request_to("/v1/completions", asked, f"X-Request-Id: {request_id}"))
    await writer.drain()
    return writer


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    phase: str
    stream: bool
    neighbours: int
    words: int
    """Words of the prompt, of about as many tokens."""
    new: int
    """Tokens of the answer."""
    most: int
    """Tokens of a neighbour's answer."""
    linger: float
    """The most seconds that the phase lasts before the client closes."""

    @property
    def name(self) -> str:
        return f"{'streaming' if self.stream else 'not streaming'}, {self.phase}"


async def one(port: int, slots: Slots, case: Case, number: int) -> float:
    """Return the seconds from close to free."""
    request_id = f"bench-{number}-{random.getrandbits(32):x}"
    words = case.words if case.phase == "prefill" else 16
    writer = await send(port, request_id, prompt=prompt(words, number), max_tokens=case.new, stream=case.stream)
    await slots.until(request_id, case.phase)
    await asyncio.sleep(random.uniform(case.linger / 15, case.linger))
    if await slots.state(request_id) != case.phase:
        raise RuntimeError(f"the request left its {case.phase} before the client could")
    begun = time.perf_counter()
    writer.close()
    await slots.until(request_id, None)
    return time.perf_counter() - begun


@contextlib.asynccontextmanager
async def neighbours(port: int, slots: Slots, count: int, new: int) -> AsyncIterator[None]:
    """Streams that decode for as long as the context lasts."""
    ids = [f"neighbour-{i}-{time.monotonic_ns()}" for i in range(count)]
    writers = [await send(port, i, prompt="Once upon a time", max_tokens=new, stream=True) for i in ids]
    for request_id in ids:
        await slots.until(request_id, "decode")
    yield
    for writer in writers:
        writer.close()
    for request_id in ids:
        await slots.until(request_id, None)


async def measure(port: int, case: Case, rounds: int) -> None:
    slots = await Slots.connect(port)
    async with neighbours(port, slots, case.neighbours, case.most):
        begun = time.perf_counter()
        await slots.get()
        asked = time.perf_counter() - begun
        times = [await one(port, slots, case, number) for number in range(rounds)]
    cells = (statistics.median(times), quantile(times, 0.99), asked)
    print(f"| {case.name} | {case.neighbours} | {' | '.join(f'{cell * 1e3:.1f}' for cell in cells)} |", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--neighbours", default="0,1")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--step-target-ms", type=float, default=250.0)
    parser.add_argument("--backend", default="trio")
    parser.add_argument("--prompt-words", type=int, default=2000, help="of prompts that are left during prefill")
    parser.add_argument("--new", type=int, default=200, help="tokens of an answer")
    parser.add_argument("--linger", type=float, default=0.3, help="most seconds from the phase to the close")
    args = parser.parse_args()
    flags = ["--model", args.model, "--slots", str(args.slots), "--context", str(args.context)]
    flags += ["--async-backend", args.backend, "--step-target-ms", str(args.step_target_ms), "--client-patience", "600"]
    async with serving(*flags) as served:
        print("| request | neighbours | p50 ms | p99 ms | one poll ms |\n|---|---|---|---|---|")
        for count in map(int, args.neighbours.split(",")):
            for phase in ("decode", "prefill"):
                for stream in (True, False):
                    case = Case(phase, stream, count, args.prompt_words, args.new, args.context - 64, args.linger)
                    await measure(served.port, case, args.rounds)


asyncio.run(main())
