"""Many streams on a pretended device: what the gateway and the engine's own Python allow, and what clients cost.

    python -m tests.benchmarks.many_streams [--streams 1000] [--rows 256] [--step-ms 3] [--tokens 100] [-- FLAGS]

The server is the program itself, with an engine process whose steps compute nothing and take a set time. The ideal is
one token of each row in each step. Streams that find no row wait in the queue. At the end all streams are closed at
once in the middle of their text, and the time until the engine is free is measured.
"""

import argparse
import asyncio
import contextlib
import itertools
import resource
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine import embedded_model
from tests.benchmarks.serving import GUARD, quantile, request_to, serving
from tests.failures.processes import cpu_seconds, resident_bytes
from tests.program import engines_of

_PROGRAM = """
import sys
from engine.client import opening
from engine.environment import command_for
step = sys.argv.pop(1)
opening.command_for = lambda _module: [*command_for("tests.engine.fake_child"), step, "counting"]
from gateway.__main__ import main
sys.exit(main())
"""
_CONNECTS_AT_ONCE = 50
LONG = 20_000
"""Tokens of a stream that does not end by itself."""


@dataclass
class Stream:
    """One stream, as its client sees it."""

    sock: socket.socket
    tokens: int = 0
    last_at: float = 0.0
    gaps: list[float] = field(default_factory=list)
    status: bytes = b""

    def receive(self, now: float) -> bool:
        """Receive what has arrived. Returns False at the end."""
        data = self.sock.recv(1 << 16)
        self.status = self.status or data[9:12]
        if new := data.count(b'"text":'):
            self.gaps += [now - self.last_at] if self.tokens else []
            self.tokens, self.last_at = self.tokens + new, now
        return bool(data) and not data.endswith(b"0\r\n\r\n")


def connect(port: int, tokens: int, number: int) -> Stream:
    """Send the request of a stream."""
    body = {"prompt": f"{number}", "max_tokens": tokens, "stream": True, "ignore_eos": True}
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(request_to("/v1/completions", body, f"Authorization: Bearer {number}"))
    return Stream(sock)


def run(port: int, streams: int, tokens: int, until: float) -> tuple[list[Stream], float]:
    """Run so many streams together, to their end, or until all are open and so many of their tokens have arrived.

    Returns the streams and the seconds.
    """
    opened: list[Stream] = []
    began = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        numbers = iter(range(streams))
        left, received = streams, 0
        while left and (len(opened) < streams or received < until):
            for number in itertools.islice(numbers, _CONNECTS_AT_ONCE):
                opened.append(connect(port, tokens, number))
                selector.register(opened[-1].sock, selectors.EVENT_READ, opened[-1])
            for key, _ in selector.select(0 if len(opened) < streams else None):
                stream = key.data
                before = stream.tokens
                if not stream.receive(time.perf_counter()):
                    selector.unregister(stream.sock)
                    stream.sock.close()
                    left -= 1
                received += stream.tokens - before
    return opened, time.perf_counter() - began


def get(port: int, path: str) -> str:
    """Return the body of a response."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        with sock.makefile("rb") as file:
            return file.read().decode()


def running(port: int) -> int:
    """Return the number of requests that the server has not ended."""
    lines = get(port, "/metrics").splitlines()
    return int(float(next(x for x in lines if x.startswith("llama_gateway_requests_in_progress{")).rpartition(" ")[2]))


@contextlib.contextmanager
def many_files(streams: int) -> Iterator[None]:
    """Allow this process and its children so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * streams + 1024), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def report(args: argparse.Namespace, port: int, pids: tuple[int, ...]) -> None:
    """Measure and print."""
    cpu, idle = [*map(cpu_seconds, pids), time.process_time()], resident_bytes(pids[0])
    streams, seconds = run(port, args.streams, args.tokens, float("inf"))
    spent = [*map(cpu_seconds, pids), time.process_time()]
    tokens, gaps = sum(one.tokens for one in streams), list(itertools.chain.from_iterable(one.gaps for one in streams))
    ideal = args.rows / args.step_ms * 1e3
    each = ", ".join(
        f"{name} {(now - then) / tokens * 1e6:.0f}"
        for name, then, now in zip(("gateway", "engine", "client"), cpu, spent, strict=True)
    )
    refused = sum(one.status != b"200" for one in streams)
    print(f"{args.streams} streams, {refused} refused: {tokens / seconds:.0f} tokens/s, {tokens / seconds / ideal:.2f}")
    print(f"of the ideal; CPU a token: {each} µs; gaps p50 {quantile(gaps, 0.5) * 1e3:.0f} ms, ", end="")
    print(f"p99 {quantile(gaps, 0.99) * 1e3:.0f} ms, worst {max(gaps, default=0) * 1e3:.0f} ms", flush=True)
    streams, _ = run(port, args.streams, LONG, args.rows)
    while running(port) < args.streams:
        time.sleep(0.1)
    grown = (resident_bytes(pids[0]) - idle) / args.streams / 1024
    print(f"memory of the gateway: {grown:.0f} KiB a connection; ", end="")
    began = time.perf_counter()
    get(port, "/health")
    print(f"/health in {(time.perf_counter() - began) * 1e3:.0f} ms; ", end="")
    began = time.perf_counter()
    for one in streams:
        one.sock.close()
    while running(port):
        time.sleep(0.01)
    print(f"all closed and freed in {time.perf_counter() - began:.2f} s", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--step-ms", type=float, default=3.0)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("flags", nargs="*", help="flags of the server, behind --")
    args = parser.parse_args()
    flags = ["--model", embedded_model(), "--slots", str(args.rows), "--queue-limit", str(args.streams), *args.flags]
    program = ["-c", _PROGRAM, str(args.step_ms / 1e3)]
    with many_files(args.streams):
        async with serving(*flags, program=program) as served, asyncio.timeout(GUARD):
            await asyncio.to_thread(report, args, served.port, (served.pid, *engines_of(served.pid)))


if __name__ == "__main__":
    asyncio.run(main())
