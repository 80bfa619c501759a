"""Tokens per second with and without draft tokens, in turn, in one engine: `python -m tests.benchmarks.speculation`."""

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median

import numpy as np

from engine.config import EngineConfig
from tests.architectures.engine import Engine

MODES = {"off": False, "auto": None, "on": True}
"""Values of `speculative`."""
PASSAGE, TIMES = 40, 5
"""Tokens of a random passage, and how often the prompt has it."""


def main() -> None:
    """Print the speeds of each mode, and their ratio to that without draft tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="count the CPU time of one thread, on a busy machine")
    args = parser.parse_args()
    config = EngineConfig(model=args.model, slots=args.clients, context=1024, threads=1 if args.cpu else None)
    clock = time.thread_time if args.cpu else time.perf_counter
    with ExitStack() as stack:
        engine = Engine(config, stack, exact=False)
        print(f"at most {engine.max_draft} draft tokens; {config.slots} slots")
        speeds: dict[str, list[tuple[float, int, int]]] = {name: [] for name in MODES}
        for _ in range(args.rounds):
            for name, mode in MODES.items():
                speeds[name].append(measure(engine, args, mode, clock))
        report(speeds)


def measure(
    engine: Engine, args: argparse.Namespace, mode: bool | None, clock: Callable[[], float]
) -> tuple[float, int, int]:
    """Return the tokens per second of answers to repetitive prompts, and their drafted and accepted tokens."""
    rng = np.random.default_rng(0)
    prompts = [list(map(int, rng.integers(300, 500, PASSAGE))) * TIMES for _ in range(args.clients)]
    keys = [engine.add(one, args.tokens, speculative=mode, logprobs=None, cache_prompt=False) for one in prompts]
    while sum(slot.state == "decode" for slot in engine.scheduler.inspect()) < args.clients:
        engine.step()
    before, began = engine.metrics.generated_tokens, clock()
    engine.drain()
    speed = (engine.metrics.generated_tokens - before) / (clock() - began)
    ends = [engine.finished(key) for key in keys]
    return speed, sum(end.drafted for end in ends), sum(end.accepted for end in ends)


def report(speeds: dict[str, list[tuple[float, int, int]]]) -> None:
    """Print one line for each mode."""
    plain = median(speed for speed, _, _ in speeds["off"])
    for name, measured in speeds.items():
        speed = median(speed for speed, _, _ in measured)
        _, drafted, accepted = measured[-1]
        print(f"{name:5} {speed:7.1f} tokens/s  {speed / plain:5.2f}  accepted {accepted} of {drafted}")


if __name__ == "__main__":
    main()
