"""The CPU time of one streamed token, in the gateway process and in the engine process.

    python -m tests.benchmarks.stream_cost --model MODEL.gguf [--streams 32] [--tokens 200] [--rounds 3] [--threads 1]

Starts a server of its own with a slot for each stream, and reads the CPU time of both processes (Linux, `/proc`) before
and after each round of streams. A small model shows what the program costs: of the engine's time its model is a part.
"""

import argparse
import asyncio

from tests.benchmarks.serving import GUARD, post, serving
from tests.failures.processes import cpu_seconds
from tests.program import engines_of


async def stream(port: int, number: int, tokens: int) -> int:
    """Return the tokens that a stream reports at its end."""
    usage = {"stream_options": {"include_usage": True}}
    answer = await post(port, prompt=f"{number} time people way", max_tokens=tokens, stream=True, **usage)
    if b"data: [DONE]" not in answer:
        raise RuntimeError(f"a stream ended early: {answer[-200:]!r}")
    return int(answer.rpartition(b'"completion_tokens":')[2].partition(b",")[0])


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--backend", default="trio", choices=["trio", "asyncio"])
    args = parser.parse_args()
    flags = ["--model", args.model, "--slots", str(args.streams), "--async-backend", args.backend]
    flags += ["--threads", str(args.threads)] if args.threads else []
    async with serving(*flags) as served, asyncio.timeout(GUARD * args.rounds):
        gateway, (engine,) = served.pid, engines_of(served.pid)
        for _ in range(args.rounds):
            before = cpu_seconds(gateway), cpu_seconds(engine)
            counts = await asyncio.gather(*(stream(served.port, number, args.tokens) for number in range(args.streams)))
            spent = cpu_seconds(gateway) - before[0], cpu_seconds(engine) - before[1]
            in_gateway, in_engine = (seconds / sum(counts) * 1e6 for seconds in spent)
            print(
                f"{sum(counts)} tokens: gateway {in_gateway:.0f}, engine {in_engine:.0f}, "
                f"together {in_gateway + in_engine:.0f} µs of CPU a token",
                flush=True,
            )


if __name__ == "__main__":
    asyncio.run(main())
