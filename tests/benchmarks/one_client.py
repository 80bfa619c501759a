"""The speed of one client: this server beside llama-server.

    python -m tests.benchmarks.one_client --model MODEL.gguf --llama-server BINARY [--rounds 10] [--new 120]
        [--threads N] [-- FLAGS]

Both servers run all the time and are asked in turn, in random order, with the same random prompts, without speculation,
and with their own defaults besides the temperature 0: llama-server takes longer with `top_k` 0 than with its 40.
A reading is the time from the first event of an answer to its last one, for its tokens after the first. (llama-server
sends one event more than tokens, at once after the last token: a mean of the gaps between events would be too short.)
"""

import argparse
import asyncio
import random
import statistics
from collections.abc import Sequence

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
    """Return the medians of both servers, and that of the ratios of their speeds."""
    read: dict[str, list[float]] = {name: [] for name in ports}
    for seed in range(rounds + 1):
        for name in random.sample(list(ports), len(ports)):
            read[name].append(await seconds_a_token(ports[name], tokens, seed))
    read = {name: times[1:] for name, times in read.items()}  # the first round warms up
    ratios = [theirs / ours for ours, theirs in zip(*read.values(), strict=True)]
    low, high = interval(ratios)
    times = ", ".join(f"{name} {statistics.median(times) * 1e3:.2f} ms a token" for name, times in read.items())
    return f"{times}; speed {statistics.median(ratios):.3f} of llama-server's [{low:.3f}, {high:.3f}], {rounds} rounds"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--llama-server", metavar="BINARY", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--new", type=int, default=120, help="tokens of an answer")
    parser.add_argument("--threads", type=int, help="of both servers; by default each chooses")
    parser.add_argument("flags", nargs="*", help="further flags of this server, after --")
    args = parser.parse_args()
    ours = ["--model", args.model, "--slots", "4", "--context", "1024", "--speculation", "off"]
    theirs = ["-m", args.model, "-np", "4", "-c", "4096", "--no-kv-unified", "--no-repack"]
    threads = (["--threads", str(args.threads)], ["-t", str(args.threads)]) if args.threads else ([], [])
    own = serving(*ours, *threads[0], *args.flags)
    async with own as this, llama_server(args.llama_server, *theirs, *threads[1]) as other:
        print(await compare({"this server": this.port, "llama-server": other.port}, args.rounds, args.new))


if __name__ == "__main__":
    asyncio.run(main())
