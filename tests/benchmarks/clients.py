"""Tokens per second, first tokens and gaps of 1 to 128 clients: this server, llama-server, and llama.cpp alone.

    python -m tests.benchmarks.clients --model MODEL.gguf [--clients 1,8,32,128] [--prompt 128] [--new 128]
        [--temperature 0] [--llama-server BINARY] [--theirs "--backend-sampling"] [--batched-bench BINARY] [-- FLAGS]

The servers run one after another, each alone on the machine, without speculation. Each client sends its next streaming
request at once; all prompts differ. The clients are shared out among processes of their own, so that they do not limit
a fast device. llama.cpp alone is its `llama-batched-bench` on the same lengths: no text, no draws, no HTTP.
"""

import argparse
import asyncio
import json
import random
import shlex
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from typing import Final

from typing_extensions import override

from tests.benchmarks.serving import Served, cpu_of, llama_server, quantile, request_to, serving

EVENT: Final = b"data: {"
GUARD: Final = 300.0


@dataclass(frozen=True)
class Load:
    """What the clients ask for."""

    prompt: int
    """Tokens of a prompt."""
    new: int
    """Tokens of an answer."""
    waves: int
    """Requests of each client, one after another."""
    temperature: float
    """Temperature of the draws; 0 is greedy."""
    defaults: bool = False
    """True to leave top_k, top_p and min_p to the server. Otherwise they are off, as in OpenAI's API."""


class Stream(asyncio.Protocol):
    """One streaming request on a connection of its own, and the arrival time of each of its events."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._status = b""
        self.sent = 0.0
        self.times: list[float] = []
        self.ended = asyncio.get_running_loop().create_future()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.sent = time.perf_counter()
        transport.write(self._request)

    @override
    def data_received(self, data: bytes) -> None:
        self._status = self._status or data[:12]
        self.times += [time.perf_counter()] * data.count(EVENT)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._status.endswith(b" 200") and self.times:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(RuntimeError(f"a request failed: {self._status!r} {exc}"))


async def hold(port: int, clients: int, load: Load, seed: int) -> list[tuple[float, list[float]]]:
    """Return the start of each request of these clients, and the times of its events."""
    draw = random.Random(seed)
    streams: list[Stream] = []

    async def client() -> None:
        for _ in range(load.waves):
            request = _request([draw.randrange(10, 500) for _ in range(load.prompt)], load)
            make = partial(Stream, request)
            _, stream = await asyncio.get_running_loop().create_connection(make, "127.0.0.1", port)
            streams.append(stream)
            await stream.ended

    async with asyncio.timeout(GUARD):
        await asyncio.gather(*(client() for _ in range(clients)))
    return [(stream.sent, stream.times) for stream in streams]


def _request(prompt: list[int], load: Load) -> bytes:
    body = {"prompt": prompt, "max_tokens": load.new, "temperature": load.temperature}
    off = {} if load.defaults else {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
    asked = {**body, **off, "ignore_eos": True, "stream": True}
    return request_to("/v1/completions", asked, "Connection: close")


def _hold(port: int, clients: int, load: Load, seed: int) -> list[tuple[float, list[float]]]:
    return asyncio.run(hold(port, clients, load, seed))


def measure(served: Served, clients: int, load: Load, pool: ProcessPoolExecutor, processes: int) -> str:
    """Let so many clients ask, and return a row of the table."""
    shares = [len(range(at, clients, processes)) for at in range(min(processes, clients))]
    before = cpu_of(served)
    work = [pool.submit(_hold, served.port, share, load, random.getrandbits(32)) for share in shares]
    streams = [stream for done in work for stream in done.result()]
    cpu = cpu_of(served) - before
    tokens = len(streams) * load.new
    seconds = max(times[-1] for _, times in streams) - min(sent for sent, _ in streams)
    first = [times[0] - sent for sent, times in streams]
    gaps = [later - earlier for _, times in streams for earlier, later in pairwise(times)]
    columns = " | ".join(f"{quantile(times, share) * 1e3:.1f}" for times in (first, gaps) for share in (0.5, 0.99))
    return f"{tokens / seconds:.0f} | {columns} | {cpu / tokens * 1e6:.0f}"


def alone(args: argparse.Namespace) -> Iterator[str]:
    """Yield rows of what llama.cpp alone generates, by its own benchmark."""
    tokens = args.slots * (args.prompt + args.new)
    command = [args.batched_bench, "-m", args.model, "-c", str(tokens), "-ngl", "99", "--output-format", "jsonl"]
    command += ["-npp", str(args.prompt), "-ntg", str(args.new), "-npl", args.clients]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=GUARD)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            read = json.loads(line)
            yield f"| {read['pl']} | llama.cpp alone, decode | {read['speed_tg']:.0f} | | | | | |"
            yield f"| {read['pl']} | llama.cpp alone | {read['pl'] * args.new / read['t']:.0f} | | | | | |"


def servers(args: argparse.Namespace) -> Iterator[tuple[str, AbstractAsyncContextManager[Served]]]:
    """Yield each server by its name."""
    context, slots = args.prompt + args.new + 16, str(args.slots)
    ours = ["--model", args.model, "--slots", slots, "--context", str(context), "--speculation", "off"]
    yield "this server", serving(*ours, *args.flags)
    if args.llama_server:
        theirs = ["-m", args.model, "-np", slots, "-c", str(context * args.slots), "-ngl", "99", "--no-repack"]
        for more in args.theirs:
            yield f"llama-server {more}".strip(), llama_server(args.llama_server, *theirs, *shlex.split(more))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--clients", default="1,8,32,128")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--waves", type=int, default=3, help="requests of each client")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--temperature", type=float, default=0.0, help="of the draws; 1 is OpenAI's default")
    parser.add_argument("--defaults", action="store_true", help="leave top_k, top_p and min_p to the servers")
    parser.add_argument("--slots", type=int, default=128)
    parser.add_argument("--processes", type=int, default=4, help="that the clients run in")
    parser.add_argument("--llama-server", metavar="BINARY")
    parser.add_argument("--theirs", action="append", default=[""], help="flags of one more llama-server")
    parser.add_argument("--batched-bench", metavar="BINARY")
    parser.add_argument("flags", nargs="*", help="further flags of this server, after --")
    args = parser.parse_args()
    load = Load(args.prompt, args.new, args.waves, args.temperature, args.defaults)
    print("| clients | server | tokens/s | first token p50 ms | p99 | gap p50 ms | p99 | CPU µs a token |")
    print("|---|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        for name, server in servers(args):
            async with server as served:
                measure(served, args.processes, replace(load, waves=1), pool, args.processes)
                for _ in range(args.rounds):
                    for clients in map(int, args.clients.split(",")):
                        row = measure(served, clients, load, pool, args.processes)
                        print(f"| {clients} | {name} | {row} |", flush=True)
    if args.batched_bench:
        print("\n".join(alone(args)))


if __name__ == "__main__":
    asyncio.run(main())
