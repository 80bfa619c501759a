"""Plans of prompts on a pretended CPU, whose steps take the times that `prompt_steps` measured: repeatable anywhere.

    python -m tests.benchmarks.prompt_plans

The scheduler plans the steps of conversations in turns on four slots, and of long prompts beside eight streams. Each
step takes the time of its chunks and of their attention, with two threads; nothing else takes time.
"""

import math
import random
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise, takewhile
from typing import Any

from typing_extensions import override

from engine.core.scheduler import Scheduler
from engine.core.step import Chunk, StepPlan, StepResult
from engine.events import Finished, FirstToken
from engine.request import Sampling
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.benchmarks.conversations import Load
from tests.benchmarks.serving import quantile
from tests.engine.driver import Driver

TARGET = 0.25
_TILE = 64
_THREADS = 2
_WEIGHTS = ((1, 0.050), (8, 0.165), (16, 0.184), (32, 0.236), (64, 0.375), (128, 0.690), (256, 1.390), (2048, 11.3))
"""Rows of a weight pass, and its seconds of CPU without attention."""
_OF_TILE, _OF_SHORT_ROW, _OF_DECODE_ROW = 300e-6, 20e-6, 45e-6
"""Seconds of attention to a token: of a tile, of a row of a chunk below one, and of a decode row."""
_GREEDY = Sampling(temperature=0.0, ignore_eos=True)


def weights(rows: int) -> float:
    """Return the seconds of a weight pass, between the measured ones."""
    at = max(1, bisect_left(_WEIGHTS, rows, key=lambda point: point[0]))
    (less, fewer), (more, longer) = _WEIGHTS[at - 1], _WEIGHTS[at]
    return fewer + (longer - fewer) * (rows - less) / (more - less)


def attention(chunk: Chunk) -> float:
    """Return the seconds of the attention of a chunk."""
    depth = chunk.start + chunk.rows / 2
    if chunk.rows >= _TILE:
        return math.ceil(chunk.rows / _TILE) * _OF_TILE * depth
    return chunk.rows * depth * (_OF_DECODE_ROW if chunk.rows == 1 else _OF_SHORT_ROW)


def passes(plan: StepPlan) -> Iterator[int]:
    """Yield the rows of each weight pass: equally many of neighbouring slots, as llama.cpp's `split_equal` cuts."""
    left = {chunk.seq_id: chunk.rows for chunk in plan.chunks}
    while left:
        slots = list(takewhile(left.__contains__, count(min(left))))
        rows = min(left[slot] for slot in slots)
        yield rows * len(slots)
        left = {slot: tokens - rows * (slot in slots) for slot, tokens in left.items()}
        left = {slot: tokens for slot, tokens in left.items() if tokens}


def duration(plan: StepPlan) -> float:
    """Return the seconds of a step."""
    return (sum(map(weights, passes(plan))) + sum(map(attention, plan.chunks))) / _THREADS


class TimedRunner(FakeRunner):
    """A fake runner whose steps take these times."""

    clock: float = 0.0
    """Time of all steps."""

    @override
    def run(self, plan: StepPlan) -> StepResult:
        seconds = duration(plan)
        self.clock += seconds
        return super().run(plan)._replace(seconds=seconds)


@dataclass
class Run:
    """A scheduler with its steps."""

    slots: int
    """Number of slots."""
    driver: Driver = field(init=False)
    """It drives the scheduler."""
    runner: TimedRunner = field(init=False)
    """It takes the time."""
    drawn: random.Random = field(default_factory=lambda: random.Random(1))
    """The tokens of the prompts."""

    def __post_init__(self) -> None:
        # moving 800 cells takes about as long as a weight pass
        model = FakeModel(
            slots=self.slots, context=8192, cells_per_weight_pass=800, min_prefill_chunk=_TILE, prefill_tile=_TILE
        )
        self.runner = TimedRunner(model)
        self.driver = Driver(model, self.runner, store_budget=10**9)
        self.driver.scheduler = Scheduler(self.driver.ledger, step_target=TARGET, queue_limit=1000)

    def tokens(self, count: int) -> tuple[int, ...]:
        """Return tokens of a prompt."""
        return tuple(self.drawn.randrange(256) for _ in range(count))

    def ask(self, prompt: tuple[int, ...], tokens: int, **fields: Any) -> int:
        """Begin a request, and return its key."""
        return self.driver.add(prompt, max_tokens=tokens, speculative=False, sampling=_GREEDY, **fields)

    def finished(self, key: int) -> bool:
        """Return whether a request has its answer."""
        return any(isinstance(event, Finished) for event in self.driver.news.get(key, ()))

    def gaps(self, until: Callable[[list[float]], bool]) -> list[float]:
        """Return the seconds between decode steps, until they are enough."""
        times: list[float] = []
        while not until(times):
            plan = self.driver.step()
            if plan and plan.decode:
                times.append(self.runner.clock)
        return [after - before for before, after in pairwise(times)]


def converse(load: Load) -> str:
    """Return what conversations in turns take."""
    run = Run(load.together)
    common = run.tokens(load.common)
    held = [common] * load.conversations
    asked = 0
    for _ in range(load.turns):
        waiting, running = list(range(load.conversations)), dict[int, int]()
        while waiting or running:
            while waiting and len(running) < load.together:
                one = waiting.pop(0)
                held[one] += run.tokens(load.said)
                asked += len(held[one])
                running[run.ask(held[one], load.answered)] = one
            run.driver.step()
            for key in [key for key in running if run.finished(key)]:
                held[running.pop(key)] += tuple(run.driver.text(key).encode())
    computed = run.driver.scheduler.metrics().computed_prompt_tokens
    prompts = [plan for plan in run.driver.plans if not plan.decode]
    return (
        f"conversations: {run.runner.clock:.1f} s, {computed / asked:.2f} of {asked} prompt tokens computed in "
        f"{len(prompts)} steps"
    )


def interfere(streams: int, prompts: int, tokens: int) -> str:
    """Return the gaps of streams beside long prompts, one after another."""
    run = Run(streams + 1)
    for _ in range(streams):
        run.ask(run.tokens(30), 3000)
    run.gaps(lambda times: len(times) > 250)
    alone = statistics.median(run.gaps(lambda times: len(times) > 60))
    gaps: list[float] = []
    began = run.runner.clock
    for _ in range(prompts):
        key = run.ask(run.tokens(tokens), 1, cache_prompt=False)
        gaps += run.gaps(lambda _, key=key: run.finished(key))  # type: ignore[misc]
    speed = prompts * tokens / (run.runner.clock - began)
    ms = [statistics.median(gaps) * 1e3, quantile(gaps, 0.99) * 1e3, (2 * alone + TARGET) * 1e3]
    return (
        f"{streams} streams beside prompts of {tokens}: {alone * 1e3:.0f} ms alone; beside them p50 {ms[0]:.0f}, "
        f"p99 {ms[1]:.0f} (2 medians and the target: {ms[2]:.0f}); prompts {speed:.0f} tokens/s"
    )


def ask_in_turns(clients: int, lengths: Sequence[int], answered: int, requests: int) -> str:
    """Return the times of clients that all begin at once, each with its next request after its last one."""
    run = Run(clients)
    asked: dict[int, float] = {}
    first: list[float] = []
    waiting, running = requests, set[int]()
    while waiting or running:
        while waiting and len(running) < clients:
            waiting -= 1
            key = run.ask(run.tokens(run.drawn.choice(lengths)), answered, cache_prompt=False)
            asked[key] = run.runner.clock
            running.add(key)
        run.driver.step()
        begun = [key for key in asked if any(isinstance(one, FirstToken) for one in run.driver.news.get(key, ()))]
        first += [run.runner.clock - asked.pop(key) for key in begun]
        running -= {key for key in running if run.finished(key)}
    p50, p99 = statistics.median(first), quantile(first, 0.99)
    return (
        f"{clients} clients, prompts of {_shown(lengths)}, {answered} tokens: first token p50 {p50:.2f} s, "
        f"p99 {p99:.2f} s; {requests} requests in {run.runner.clock:.1f} s"
    )


def _shown(lengths: Sequence[int]) -> str:
    """Return a few lengths, or the range of many."""
    return " or ".join(map(str, sorted(set(lengths)))) if len(lengths) < 5 else f"{lengths[0]} to {lengths[-1]}"


def main() -> None:
    print(converse(Load(conversations=12, turns=4, together=4, common=300, said=80, answered=40)), flush=True)
    for tokens in (600, 2000, 6000):
        print(interfere(8, 3, tokens), flush=True)
    for clients in (8, 32):
        for lengths in ((16,), tuple(range(20, 70)), (200,), (1000,), (30, 30, 30, 2000)):
            print(ask_in_turns(clients, lengths, 50, 4 * clients), flush=True)


if __name__ == "__main__":
    main()
