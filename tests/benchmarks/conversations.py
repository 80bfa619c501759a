"""Conversations in turns on few slots, beside another server: the prompt tokens computed, and the time of all.

    python -m tests.benchmarks.conversations --model MODEL.gguf [--llama-server BINARY] [--rounds 2] [-- FLAGS]

Each conversation begins with the same tokens, and asks its next turn after the others have asked theirs. Prompts and
answers are token ids, so that every server gets the same prompts and can reuse all that is possible. In each round the
servers run in turn, with other conversations than in the round before.
"""

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.serving import Served, cpu_of, llama_server, request_to, serving


@dataclass
class Load:
    """Load of one round."""

    conversations: int
    """Number of conversations."""
    turns: int
    """Turns of each."""
    together: int
    """Number of requests at a time."""
    common: int
    """Tokens with which all conversations begin."""
    said: int
    """New tokens of a turn."""
    answered: int
    """Tokens of an answer."""


@dataclass
class Totals:
    """Cost of one round."""

    seconds: float = 0.0
    """Time of all conversations."""
    cpu: float = 0.0
    """CPU time of the server. With several threads it includes their waits for each other."""
    prompts: int = 0
    """Tokens of all prompts."""
    computed: int = 0
    """Those that were computed."""
    reading: list[float] = field(default_factory=list)
    """Seconds of each request until its first token, as the server says."""
    answering: list[float] = field(default_factory=list)
    """Seconds of each request from then on."""

    def add(self, timings: dict[str, Any]) -> None:
        """Add a response."""
        self.prompts += timings["cache_n"] + timings["prompt_n"]
        self.computed += timings["prompt_n"]
        self.reading.append(timings["prompt_ms"] / 1e3)
        self.answering.append(timings["predicted_ms"] / 1e3)

    def __str__(self) -> str:
        share = f"{self.computed / self.prompts:.2f} of {self.prompts} prompt tokens computed"
        parts = f"prompts {sum(self.reading):.0f} s, answers {sum(self.answering):.0f} s in all requests"
        return f"{self.seconds:.1f} s, {self.cpu:.1f} s of CPU; {share}; {parts}"


async def converse(port: int, load: Load, seed: int) -> Totals:
    """Hold all conversations, and return what they took."""
    draw = random.Random(seed)
    common = _tokens(draw, load.common)
    held = [common.copy() for _ in range(load.conversations)]
    totals = Totals()
    began = time.perf_counter()
    for _ in range(load.turns):
        waiting = iter(held)

        async def client(conversations: Iterator[list[int]] = waiting) -> None:
            for tokens in conversations:
                tokens.extend(_tokens(draw, load.said))
                answer = await ask(port, tokens, load.answered)
                tokens.extend(answer["tokens"])
                totals.add(answer["timings"])

        await asyncio.gather(*(client() for _ in range(load.together)))
    totals.seconds = time.perf_counter() - began
    return totals


def _tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(10, 1000) for _ in range(count)]


async def ask(port: int, prompt: list[int], tokens: int) -> dict[str, Any]:
    """Return the response of llama-server's `/completion`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True, "return_tokens": True}
    asked = {**body, "cache_prompt": True, "speculative": False}
    writer.write(request_to("/completion", asked, "Connection: close"))
    answer = await reader.read()
    writer.close()
    status, _, content = answer.partition(b"\r\n\r\n")
    if b" 200 " not in status[:16]:
        raise RuntimeError(f"a request failed: {answer[-200:]!r}")
    decoded: dict[str, Any] = json.loads(content)
    return decoded


async def compare(args: argparse.Namespace, load: Load, servers: dict[str, Served]) -> None:
    """Let the servers hold the same conversations, one after another."""
    rounds: dict[str, list[Totals]] = {name: [] for name in servers}
    for number in range(args.rounds):
        for name, served in servers.items():
            before = cpu_of(served)
            totals = await converse(served.port, load, number)
            totals.cpu = cpu_of(served) - before
            rounds[name].append(totals)
            print(f"{name}: {totals}", flush=True)
    for name, each in rounds.items():
        seconds, cpu = (statistics.median(getattr(totals, what) for totals in each) for what in ("seconds", "cpu"))
        print(f"{name}: median {seconds:.1f} s, {cpu:.1f} s of CPU")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--llama-server", metavar="BINARY")
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--slots", type=int, default=4, help="of each server, and requests at a time")
    parser.add_argument("--threads", type=int, default=2, help="with 1, CPU time is that of the work")
    parser.add_argument("--common", type=int, default=300, help="tokens with which all begin")
    parser.add_argument("--said", type=int, default=80, help="new tokens of a turn")
    parser.add_argument("--answered", type=int, default=40, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("flags", nargs="*", help="further flags of the server, after --")
    args = parser.parse_args()
    load = Load(args.conversations, args.turns, args.slots, args.common, args.said, args.answered)
    threads, slots = str(args.threads), str(args.slots)
    context = -(-(load.common + load.turns * (load.said + load.answered)) // 256) * 256
    ours = ["--model", args.model, "--slots", slots, "--context", str(context), "--threads", threads, *args.flags]
    async with contextlib.AsyncExitStack() as stack:
        servers = {"this server": await stack.enter_async_context(serving(*ours))}
        if args.llama_server:
            theirs = ["-m", args.model, "-np", slots, "-c", str(context * args.slots), "-t", threads, "--no-repack"]
            servers["llama-server"] = await stack.enter_async_context(llama_server(args.llama_server, *theirs))
        await compare(args, load, servers)


if __name__ == "__main__":
    asyncio.run(main())
