#!/usr/bin/env python3
"""The cost of one engine step besides llama_decode and the draws: plan, batch, apply, text, frame.

python -m tests.benchmarks.step_overhead --model MODEL.gguf [--rows 32] [--steps 40]
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from engine.config import EngineConfig
from engine.events import EngineMetrics, Event
from engine.llama.runner import LlamaRunner
from engine.protocol.codec import encode
from engine.protocol.messages import Step
from engine.request import GenerationRequest, Sampling
from engine.worker.loop import StepLoop
from engine.worker.main import load
from engine.worker.progress import Progress
from tests.engine.driver import at_once


class Stopwatch:
    """Adds up the time spent in the functions that it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args)
            finally:
                self.seconds += time.perf_counter() - began

        return timed

    def take(self) -> float:
        seconds, self.seconds = self.seconds, 0.0
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    config = EngineConfig(model=args.model, slots=args.rows, context=512, queue_limit=args.rows, repack=False)
    with ExitStack() as stack:
        loaded = load(config, lambda _share: None, stack)
        runner = loaded.runner
        assert isinstance(runner, LlamaRunner)
        decode, draw = Stopwatch(), Stopwatch()
        context = runner._context
        context.decode = decode.wrap(context.decode)  # type: ignore[method-assign]
        runner._draw = draw.wrap(runner._draw)  # type: ignore[method-assign]
        frames: list[int] = []

        def publish(news: Iterable[tuple[int, Event]], metrics: EngineMetrics) -> None:
            frames.append(len(encode(Step(tuple(news), metrics))))

        lanes = loaded.lanes(config)
        lane = lanes[GenerationRequest]
        loop = StepLoop(lanes.values(), publish, Progress())
        for key in range(args.rows):
            request = GenerationRequest(
                id="bench",
                prompts=(f"{key} time people way water",),
                max_tokens=400,
                stream=True,
                sampling=Sampling(temperature=0.0, ignore_eos=True),
            )
            loop.add(lane, at_once(lane.admit(key, request)), lambda: None)
        while loop.metrics().prompt_tokens == 0 or loop.metrics().rows_decoded < 2 * args.rows:
            loop._step()
        others, decodes, draws = [], [], []
        for _ in range(args.steps):
            decode.take(), draw.take()
            began = time.perf_counter()
            loop._step()
            whole = time.perf_counter() - began
            decodes.append(decode.take())
            draws.append(draw.take())
            others.append(whole - decodes[-1] - draws[-1])
        for name, values in (("decode", decodes), ("draws", draws), ("everything else", others)):
            print(
                f"{name:16} median {statistics.median(values) * 1e3:8.3f} ms  worst {max(values) * 1e3:8.3f} ms a step"
            )


main()
