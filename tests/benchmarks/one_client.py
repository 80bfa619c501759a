"""The speed of one client: this server beside llama-server.

    python -m tests.benchmarks.one_client --model MODEL.gguf --llama-server BINARY [--rounds 10] [--new 120]
        [--threads N] [--least] [-- FLAGS]

The servers run all the time and are asked in turn, in random order, with the same random prompts, without speculation,
and with their own defaults besides the temperature 0: llama-server takes longer with `top_k` 0 than with its 40.
A reading is the time from the first event of an answer to its last one, for its tokens after the first. (llama-server
sends one event more than tokens, at once after the last token: a mean of the gaps between events would be too short.)
With `--least` `tests.benchmarks.least_server` is compared, too.
"""

import argparse
import asyncio
import random
import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack

from tests.benchmarks.clients import Load, hold
from tests.benchmarks.serving import llama_server, serving

PROMPT = 32
DRAWS = 1000
"""Draws of the bootstrap."""


async def seconds_a_token(port: int, tokens: int, seed: int) -> float:
    """Return the seconds of a token of one answer after its first."""
    [(_, times)] = await hold(port, 1, Load(PROMPT, tokens, 1, 0.0, defaults=True), seed)
    return (times[-1] - times[0]) / (tokens - 1)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the bounds that hold nine tenths of the medians of samples, by bootstrap."""
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(DRAWS))
    return medians[DRAWS // 20], medians[-DRAWS // 20]


async def compare(ports: dict[str, int], rounds: int, tokens: int) -> str:
    """Return the median of each server, and that of the ratios of its speed to the last one's."""
    read: dict[str, list[float]] = {name: [] for name in ports}
    for seed in range(rounds + 1):
        for name in random.sample(list(ports), len(ports)):
            read[name].append(await seconds_a_token(ports[name], tokens, seed))
    *compared, (base, times) = ((name, each[1:]) for name, each in read.items())  # the first round warms up
    lines = [f"{base}: {statistics.median(times) * 1e3:.2f} ms a token, {rounds} rounds"]
    for name, own in compared:
        ratios = [theirs / ours for ours, theirs in zip(own, times, strict=True)]
        low, high = interval(ratios)
        share = f"{statistics.median(ratios):.3f} of its speed [{low:.3f}, {high:.3f}]"
        lines.append(f"{name}: {statistics.median(own) * 1e3:.2f} ms a token, {share}")
    return "\n".join(lines)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--llama-server", metavar="BINARY", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--new", type=int, default=120, help="tokens of an answer")
    parser.add_argument("--threads", type=int, help="of both servers; by default each chooses")
    parser.add_argument("--least", action="store_true", help="compare the least server of this kind, too")
    parser.add_argument("flags", nargs="*", help="further flags of this server, after --")
    args = parser.parse_args()
    ours = ["--model", args.model, "--slots", "4", "--context", "1024", "--speculation", "off"]
    theirs = ["-m", args.model, "-np", "4", "-c", "4096", "--no-kv-unified", "--no-repack"]
    threads = (["--threads", str(args.threads)], ["-t", str(args.threads)]) if args.threads else ([], [])
    servers = {"this server": serving(*ours, *threads[0], *args.flags)}
    if args.least:
        program = ("-m", "tests.benchmarks.least_server")
        servers["the least server"] = serving("--model", args.model, *threads[0], program=program)
    servers["llama-server"] = llama_server(args.llama_server, *theirs, *threads[1])
    async with AsyncExitStack() as stack:
        ports = {name: (await stack.enter_async_context(one)).port for name, one in servers.items()}
        print(await compare(ports, args.rounds, args.new))


if __name__ == "__main__":
    asyncio.run(main())
