"""The throughput over HTTP as a share of llama.cpp's own, measured in turn for several numbers of clients.

    python -m tests.benchmarks.throughput --model MODEL.gguf [--clients 1,8,16,24,32] [--rounds 3] [--slots 32]

The limit: prompts one by one and decode passes with a row for each client, timed inside `llama_decode`. The server:
that many clients, each sending its next request at once, without speculation. The speed of a shared machine drifts, so
each reading of the server is compared with the limits right before and right after it. The output has medians.
"""

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import time

from engine.client.process import child_environment
from engine.config import EngineConfig
from engine.core.sequence import Sequence
from engine.core.step import Chunk, StepPlan
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.request import Sampling
from tests.benchmarks.serving import GUARD, Served, post, serving
from tests.engine.driver import running

PROMPT, NEW = 17, 50
"""Tokens of each request, and tokens that it asks for."""
_TIMED = 12


def limit(model_path: str, rows: int, threads: int) -> float:
    """Return the tokens per second of so many clients if only `llama_decode` took time."""
    config = EngineConfig(model=model_path, slots=rows, context=256, threads=threads)
    with LlamaModel(config, lambda _share: None) as model, LlamaRunner(model, config) as runner:
        sequences = [_sequence(seq_id) for seq_id in range(rows)]
        prefill = min(_pass(runner, [one], decode=False) / one.prompt for one in sequences)
        steps = [_pass(runner, sequences, decode=True) for _ in range(_TIMED)]
    return NEW / (PROMPT * prefill + NEW * statistics.median(steps[2:]) / rows)


def _sequence(seq_id: int) -> Sequence:
    tokens = [3 + (7 * at + seq_id) % 900 for at in range(PROMPT + NEW // 2)]
    return running(seq_id, tokens, sampling=Sampling(temperature=0.0, ignore_eos=True))


def _pass(runner: LlamaRunner, sequences: list[Sequence], *, decode: bool) -> float:
    """Return the seconds in `llama_decode`. The next token is made up."""
    plan = StepPlan(tuple(Chunk(one, one.pending, sample=True) for one in sequences), decode=decode)
    result = runner.run(plan)
    for one in sequences:
        one.advance(one.pending, result.seconds)
        one.tokens.append(5)
    return result.seconds


async def speed(served: Served, clients: int, requests: int, *, stream: bool) -> float:
    """Return the tokens per second of so many clients together."""
    waiting = iter(range(requests))

    async def client() -> None:
        for _ in waiting:
            prompt = [random.randrange(10, 900) for _ in range(PROMPT)]
            answer = await post(served.port, prompt=prompt, max_tokens=NEW, stream=stream)
            if not answer.startswith(b"HTTP/1.1 200") or b'"error":' in answer:
                raise RuntimeError(f"a request failed: {answer[-200:]!r}")

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return requests * NEW / (time.perf_counter() - began)


def limit_in_a_process(args: argparse.Namespace, rows: int) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.throughput", "--model", args.model, "--limit", str(rows)]
    done = subprocess.run(
        [*command, "--threads", str(args.threads)],
        env=child_environment(os.environ),  # in the same pages
        check=True,
        stdout=subprocess.PIPE,
        timeout=GUARD,
    )
    return float(done.stdout)


async def compare(args: argparse.Namespace) -> None:
    flags = ["--model", args.model, "--slots", str(args.slots), "--threads", str(args.threads), "--speculation", "off"]
    async with serving(*flags) as served:
        for clients in map(int, args.clients.split(",")):
            print(await _compare(args, served, clients), flush=True)


async def _compare(args: argparse.Namespace, served: Served, clients: int) -> str:
    shares: dict[bool, list[float]] = {True: [], False: []}
    limits = [await asyncio.to_thread(limit_in_a_process, args, clients)]
    for _ in range(args.rounds):
        for stream, shares_so in shares.items():
            reached = await speed(served, clients, max(8, args.waves * clients), stream=stream)
            limits.append(await asyncio.to_thread(limit_in_a_process, args, clients))
            shares_so.append(reached / statistics.mean(limits[-2:]))
    streaming, whole = map(statistics.median, shares.values())
    limit_told = f"limit {statistics.median(limits):.1f} tokens/s"
    return f"{clients} clients: {limit_told}, streaming {streaming:.2f} of it, not streaming {whole:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--clients", default="1,8,16,24,32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--waves", type=int, default=4, help="requests of each client in a round")
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, metavar="ROWS", help="print this limit alone")
    args = parser.parse_args()
    if args.limit:
        print(limit(args.model, args.limit, args.threads))
    else:
        asyncio.run(compare(args))


if __name__ == "__main__":
    main()
