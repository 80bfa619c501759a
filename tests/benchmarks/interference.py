"""The cost of long prompts for concurrent streams, and of the streams for the prompts.

    python -m tests.benchmarks.interference --model MODEL.gguf [--streams 8] [--prompts 4] [--prompt-tokens 2000]

One after another: prompts on an idle server; streams alone; prompts, one after another, beside the same streams. Prints
the time between two tokens of a stream, undisturbed and disturbed, and the speed of the prompts, alone and beside them.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Self

from tests.benchmarks.serving import GUARD, Served, open_completion, post, quantile, serving


async def prompt_speed(served: Served, prompts: int, tokens: int) -> float:
    """Return the tokens per second of prompts that come one after another; the first token of each is awaited."""
    speeds = []
    for _ in range(prompts):
        ids = [random.randrange(10, 1000) for _ in range(tokens)]
        began = time.perf_counter()
        answer = await post(served.port, prompt=ids, max_tokens=1, cache_prompt=False)
        speeds.append(tokens / (time.perf_counter() - began))
        if b'"completion_tokens":1' not in answer:
            raise RuntimeError(f"a prompt failed: {answer[-200:]!r}")
    return statistics.median(speeds)


class Streams:
    """Streams that run until they are closed, and the arrival times of their tokens."""

    def __init__(self, served: Served, count: int) -> None:
        self._served = served
        self._count = count
        self._times: list[list[float]] = [[] for _ in range(count)]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._read(number)) for number in range(self._count)]
        while not all(self._times):  # noqa: ASYNC110 - the streams note their own times
            await asyncio.sleep(0.05)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        failed = [result for result in results if not isinstance(result, asyncio.CancelledError)]
        if failed:
            raise RuntimeError(f"streams ended early: {failed}")

    def gaps(self, began: float) -> list[float]:
        """Return the seconds between two tokens of one stream, from a given time on."""
        since = [[at for at in times if at >= began] for times in self._times]
        return [b - a for times in since for a, b in pairwise(times)]

    async def _read(self, number: int) -> None:
        async for _ in tokens_of(self._served.port, f"{number} time people way water day part sound work"):
            self._times[number].append(time.perf_counter())


async def tokens_of(port: int, prompt: str) -> AsyncIterator[bytes]:
    """Yield the events of a stream that has no end."""
    reader, writer = await open_completion(port, prompt=prompt, stream=True, max_tokens=3000)
    try:
        async for line in reader:
            if line.startswith(b"data: {"):
                yield line
    finally:
        writer.close()


def describe(name: str, gaps: list[float]) -> str:
    p50, p99, worst = (seconds * 1e3 for seconds in (statistics.median(gaps), quantile(gaps, 0.99), max(gaps)))
    return f"{name}: p50 {p50:.0f}, p99 {p99:.0f}, worst {worst:.0f} ms between two tokens"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--prompt-tokens", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=15, help="for how long the streams are watched undisturbed")
    parser.add_argument("flags", nargs="*", help="further flags of the server, after --")
    args = parser.parse_args()
    flags = ["--model", args.model, "--slots", str(args.streams + 1), "--context", "4096", *args.flags]
    async with serving(*flags) as served, asyncio.timeout(GUARD + 60 * args.prompts):
        alone = await prompt_speed(served, args.prompts, args.prompt_tokens)
        print(f"prompts alone: {alone:.0f} tokens/s", flush=True)
        async with Streams(served, args.streams) as streams:
            began = time.perf_counter()
            await asyncio.sleep(args.seconds)
            print(describe(f"{args.streams} streams alone", streams.gaps(began)), flush=True)
            began = time.perf_counter()
            beside = await prompt_speed(served, args.prompts, args.prompt_tokens)
            print(describe(f"{args.streams} streams beside prompts", streams.gaps(began)), flush=True)
        print(f"prompts beside {args.streams} streams: {beside:.0f} tokens/s, {beside / alone:.2f} of alone")


if __name__ == "__main__":
    asyncio.run(main())
