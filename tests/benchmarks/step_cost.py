"""The cost of a pass besides llama.cpp: the pause between two calls of `llama_decode`, and the CPU time of a token.

    python -m tests.benchmarks.step_cost [--model MODEL.gguf] [--rows 1,8,32] [--tokens 400] [--temperature 0]
        [--drafts]

Without a model a pass computes nothing and takes 3 ms, as on a device, so that the rest is the program alone. The
engine's step loop and its writer run as in the engine process; another process reads the frames. With `--drafts` passes
may have draft tokens, as they have by default in the program. Each figure is for passes with all rows:

- pause: from the end of one pass to the next call of `llama_decode`; median and 99th percentile of the time, and the
  CPU time of the step thread
- CPU of a token in the whole process, without `llama_decode`, and its parts: each function's own thread
- text: `Transcript` alone, a part of whatever calls it
"""

import argparse
import gc
import os
import random
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import llama_cpp
from typing_extensions import override

from engine.config import EngineConfig
from engine.core.embedding.step import EmbeddingLimits
from engine.core.output.transcript import Transcript
from engine.core.step import Outcome, StepPlan, StepResult
from engine.core.token import Token
from engine.events import Event
from engine.info import EngineMetrics
from engine.llama.runner import LlamaRunner
from engine.protocol.messages import Step
from engine.request import GenerationRequest, Sampling
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from engine.worker import main as engine_main
from engine.worker.loaded import LoadedModel
from engine.worker.loop import StepLoop
from engine.worker.pipes import MessageWriter
from engine.worker.progress import Progress
from tests.engine.driver import at_once

PASS = 0.003
"""Seconds of a pass without a model."""
WARM = 20
"""Passes with all rows before the first that counts."""


class InstantRunner(FakeRunner):
    """Draws letters at random, so that hardly any are drafted, and computes and checks nothing."""

    def __init__(self, model: FakeModel) -> None:
        super().__init__(model)
        self._random = random.Random(1)
        self._tokens = [Token(at, bytes([at]), False) for at in range(33, 127)]

    def decode(self) -> None:
        """Stand for `llama_decode` on a device."""
        time.sleep(PASS)

    @override
    def run(self, plan: StepPlan) -> StepResult:
        self.decode()
        drawn = iter(self._random.choices(self._tokens, k=len(plan.chunks)))
        draws = tuple((next(drawn),) for chunk in plan.chunks if chunk.sample)
        return StepResult(Outcome.DONE, draws, 0.001)


class Clock:
    """Adds up the CPU time of functions by part, and the pauses between the calls of one of them."""

    def __init__(self) -> None:
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self.pauses: list[tuple[float, float]] = []
        self.counting = False
        self._returned: tuple[float, float] | None = None

    def part(self, owner: Any, name: str, part: str) -> None:
        """Count the CPU time of a function in its thread."""
        call = getattr(owner, name)

        def timed(*args: Any, **fields: Any) -> Any:
            began = time.thread_time()
            try:
                return call(*args, **fields)
            finally:
                if self.counting:
                    self.cpu[part] += time.thread_time() - began

        setattr(owner, name, timed)

    def pass_(self, owner: Any, name: str, *, begins: bool = True) -> None:
        """Measure the pauses between passes. A function begins a pass, or waits for the end of one that has begun."""
        call = getattr(owner, name)

        def timed(*args: Any) -> Any:
            now, cpu = time.perf_counter(), time.thread_time()
            if begins and self.counting and self._returned:
                self.pauses.append((now - self._returned[0], cpu - self._returned[1]))
            try:
                return call(*args)
            finally:
                if self.counting:
                    self.cpu["decode"] += time.thread_time() - cpu
                self._returned = time.perf_counter(), time.thread_time()

        setattr(owner, name, timed)


def fake(rows: int, clock: Clock) -> LoadedModel:
    """Return a model that computes nothing."""
    model = FakeModel(slots=rows, context=4096)
    runner = InstantRunner(model)
    clock.pass_(runner, "decode")
    limits = EmbeddingLimits(longest=512, rows=512, texts=4, cells=2048, smallest=2048, splits=True)
    return LoadedModel(model, runner, limits, lambda _cells: None)  # type: ignore[arg-type, return-value]


def real(config: EngineConfig, stack: ExitStack, clock: Clock) -> LoadedModel:
    """Return a loaded model."""
    loaded = engine_main.load(config, lambda _share: None, stack)
    assert isinstance(loaded.runner, LlamaRunner)
    clock.pass_(llama_cpp, "llama_decode")
    clock.pass_(llama_cpp, "llama_synchronize", begins=False)
    clock.part(loaded.runner, "run", "run")
    return loaded


@contextmanager
def drained() -> Iterator[int]:
    """Return a pipe that another process reads."""
    reading, writing = os.pipe()
    if not os.fork():
        os.close(writing)
        while os.read(reading, 1 << 16):
            pass
        os._exit(0)
    os.close(reading)
    yield writing
    os.close(writing)
    os.wait()


def measure(
    model: str | None, rows: int, tokens: int, temperature: float, threads: int, *, drafts: bool | None
) -> None:
    config = EngineConfig(
        model=model or "fake", slots=rows, context=tokens + 64, queue_limit=rows, repack=False, threads=threads
    )
    clock = Clock()
    with ExitStack() as stack:
        loaded = real(config, stack, clock) if model else fake(rows, clock)
        writer = MessageWriter(stack.enter_context(drained()))
        lanes = loaded.lanes(config)
        lane = lanes[GenerationRequest]

        def publish(news: Iterable[tuple[int, Event]], metrics: EngineMetrics) -> None:
            writer.write(Step(tuple(news), metrics))

        loop = StepLoop(lanes.values(), publish, Progress())
        clock.part(loop, "_plan", "plan")
        clock.part(lane.scheduler, "apply", "apply")
        clock.part(loop, "_publish", "publish")
        for key in range(rows):
            request = GenerationRequest(
                id="bench",
                prompts=(f"{key} time",),
                max_tokens=tokens,
                stream=True,
                speculative=drafts,
                sampling=Sampling(temperature=temperature, ignore_eos=True),
            )
            loop.add(lane, at_once(lane.admit(key, request)), lambda: None)
        gc.collect()
        gc.freeze()
        spent = run(loop, writer, clock, rows, tokens)
        report(clock, rows, spent)


def run(loop: StepLoop, writer: MessageWriter, clock: Clock, rows: int, tokens: int) -> tuple[float, float, int]:
    """Run until the end is near. Return the CPU time of the process, the time, and the tokens.

    The steps run in the thread that has loaded the model, as in the engine process. GNU OpenMP has threads of its own
    for each thread that computes, and where they are more than the cores, none of them spins.
    """
    spent: list[tuple[float, float, int]] = []
    writing: list[float] = []

    def watch() -> None:
        spent.append(count(loop, clock, rows, tokens))
        loop.stop()

    def write() -> None:
        writer.run()
        writing.append(time.thread_time())

    threads = threading.Thread(target=watch), threading.Thread(target=write)
    for thread in threads:
        thread.start()
    loop.run()
    writer.close(5)
    for thread in threads:
        thread.join()
    clock.cpu["writer"] = writing[0] * spent[0][2] / generated(loop)
    return spent[0]


def generated(loop: StepLoop) -> int:
    """Return the number of tokens until now."""
    return sum(lane.scheduler.metrics().generated_tokens for lane in loop._lanes)


def count(loop: StepLoop, clock: Clock, rows: int, tokens: int) -> tuple[float, float, int]:
    """Count while all rows run. Return the CPU time of the process, the time, and the tokens."""
    while generated(loop) < WARM * rows:
        time.sleep(0.002)
    clock.counting = True
    first, cpu, began = generated(loop), time.process_time(), time.perf_counter()
    while generated(loop) < (tokens - WARM) * rows:
        time.sleep(0.02)
    clock.counting = False
    return time.process_time() - cpu, time.perf_counter() - began, generated(loop) - first


def text_seconds(count: int = 20_000) -> float:
    """Return the CPU time of the text of a token."""
    transcript, token = Transcript((), with_tokens=False), Token(97, b"a", False)
    began = time.thread_time()
    for _ in range(count):
        transcript.add(token, may_stop=True)
        transcript.take()
    return (time.thread_time() - began) / count


def report(clock: Clock, rows: int, spent: tuple[float, float, int]) -> None:
    cpu, seconds, tokens = spent
    times = sorted(wall for wall, _ in clock.pauses)
    of_thread = statistics.median(used for _, used in clock.pauses)
    decode = clock.cpu["decode"]
    each: Callable[[float], str] = lambda total: f"{total / tokens * 1e6:.1f}"  # noqa: E731
    if "run" in clock.cpu:
        clock.cpu["run"] -= decode
    parts = ", ".join(f"{part} {each(used)}" for part, used in clock.cpu.items() if part != "decode")
    median, p99 = statistics.median(times) * 1e6, times[int(len(times) * 0.99)] * 1e6
    print(
        f"{rows:3} rows: pause median {median:.0f}, p99 {p99:.0f}"
        f", CPU {of_thread * 1e6:.0f} µs; {tokens / seconds:.0f} tokens/s; CPU of a token: decode {each(decode)}, "
        f"rest {each(cpu - decode)} µs: {parts}, text {text_seconds() * 1e6:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--rows", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--drafts", action="store_true")
    args = parser.parse_args()
    for rows in map(int, args.rows.split(",")):
        drafts = None if args.drafts else False
        measure(args.model, rows, args.tokens, args.temperature, args.threads, drafts=drafts)
    os._exit(0)


if __name__ == "__main__":
    main()
