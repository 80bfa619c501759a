"""The stream of a neighbour while one client does its worst: the bodies and connections of `tests/attacks`.

    python -m tests.benchmarks.attacks [--model MODEL.gguf] [--at-once 8] [--only WORDS] [-- FLAGS]

A stream is read all the time and `/health` is asked every 20 ms, while each attack runs from several connections at
once. Prints the stream's median and largest gap, the slowest `/health`, and the gateway's largest resident memory. The
aim is a largest gap below 2 medians + 0.25 s, and `/health` within 0.1 s.
"""

import argparse
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import anyio

from tests.attacks.bodies import BODIES
from tests.attacks.test_connections import ATTACKS, Attack
from tests.benchmarks.serving import Served, serving
from tests.failures.processes import resident_bytes
from tests.gateway.server.sockets import Client, get
from tests.system.answers import STREAMED
from tests.system.served import completion

BODY = 8_000_000
"""Bytes. The default limit is 8 MiB."""
GUARD = 120.0
"""Seconds for one attack."""


class Watch:
    """A neighbour of the attack, and its figures."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.tokens: list[float] = []
        """Arrival times of the neighbour's tokens."""
        self.health: list[float] = []
        """Durations of `GET /health`."""
        self.resident = 0
        """Largest resident memory of the gateway's process so far."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stream)
            tasks.start_soon(self._ask)
            while len(self.tokens) < 20:  # noqa: ASYNC110 - the stream notes its own times
                await anyio.sleep(0.05)
            yield
            tasks.cancel_scope.cancel()

    async def _stream(self) -> None:
        while True:
            client = Client(self._served.port)
            await client.send(completion("neighbour", prompt="time", max_tokens=1500, **STREAMED))
            while b"[DONE]" not in (data := await client.receive()):
                if not data:
                    raise RuntimeError("the neighbour's stream was cut")
                self.tokens.append(time.perf_counter())
            client.close()

    async def _ask(self) -> None:
        while True:
            begun = time.perf_counter()
            client = Client(self._served.port)
            await client.send(get("/health"))
            await client.answer()
            client.close()
            self.health.append(time.perf_counter() - begun)
            self.resident = max(self.resident, resident_bytes(self._served.pid))
            await anyio.sleep(0.02)

    def row(self, begun: float) -> str:
        """Return the figures since a time, as cells of a table."""
        gaps = [after - before for before, after in pairwise(at for at in self.tokens if at >= begun)]
        median, largest = statistics.median(gaps), max(gaps)
        verdict = "" if largest < 2 * median + 0.25 else " **over**"
        cells = (f"{median * 1e3:.0f}", f"{largest * 1e3:.0f}{verdict}", f"{max(self.health) * 1e3:.0f}")
        return " | ".join((*cells, f"{self.resident / 1e6:.0f}"))


def upload(path: str, body: bytes) -> Attack:
    """Return an attack that sends one body and waits for the answer."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"

    async def attack(client: Client) -> None:
        await client.send(head.encode() + body)
        await client.answer()

    return attack


async def run(served: Served, attack: Attack, count: int) -> str:
    watch = Watch(served)
    with anyio.fail_after(GUARD):
        async with watch.running():
            begun = time.perf_counter()
            watch.health.clear()
            clients = [Client(served.port) for _ in range(count)]
            async with anyio.create_task_group() as tasks:
                for client in clients:
                    tasks.start_soon(attack, client)
            await anyio.sleep(0.5)
            row = watch.row(begun)
    for client in clients:
        client.reset()
    return row


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="default: the model inside the package")
    parser.add_argument("--at-once", type=int, default=8, help="connections of an attack")
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    parser.add_argument("flags", nargs="*", help="further flags of the server, after --")
    args = parser.parse_args()
    attacks = {name: upload(path, make(BODY)) for name, (path, make) in BODIES.items()}
    attacks |= {attack.__name__.replace("_", " "): attack for attack in ATTACKS}
    model = ["--model", str(args.model)] if args.model else []
    print("| attack | median gap, ms | largest gap, ms | slowest /health, ms | memory, MB |\n|---|---|---|---|---|")
    async with serving(*model, *args.flags) as served:
        for name, attack in attacks.items():
            if args.only in name:
                print(f"| {name} | {await run(served, attack, args.at_once)} |", flush=True)


if __name__ == "__main__":
    anyio.run(main, backend="asyncio")
