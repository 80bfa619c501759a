#!/usr/bin/env python3
"""Tokens per second of one stream on a quiet machine, on a busy one, and inside a CPU quota.

python -m tests.benchmarks.busy_machine --model MODEL.gguf [--seconds 3] [--rounds 3] [--machines quiet busy ...]

Compares the engine's own choices with libgomp's defaults and all cores, and with one thread. The settings take turns,
each in a process of its own. The quota needs root and control groups of version 1; it is left out where they are
missing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from engine.client.process import child_environment
from engine.config import EngineConfig
from engine.llama.cpu.properties import usable_cores
from engine.request import GenerationRequest, Sampling
from engine.worker.loop import StepLoop
from engine.worker.main import load
from engine.worker.progress import Progress
from tests.engine.driver import AtOnce, at_once

GROUP = Path("/sys/fs/cgroup/cpu/llama-gateway-benchmark")
SPIN = "while True: pass"
LIBGOMP_SPINS = "300000"

Enter = Callable[[], object]
"""Called in the measured process before it begins."""


def measure(model: str, threads: int | None, seconds: float) -> dict[str, float]:
    """Return tokens a second and the 99th percentile of a step, after a second of warm-up."""
    config = EngineConfig(model=model, slots=1, context=512, threads=threads, repack=False)
    with ExitStack() as stack:
        lanes = load(config, lambda _share: None, stack).lanes(config)
        lane = lanes[GenerationRequest]
        loop = StepLoop(lanes.values(), lambda _news, _metrics: None, Progress(), AtOnce())
        request = GenerationRequest(
            id="bench",
            prompts=("time people way water",),
            max_tokens=400,
            stream=True,
            speculative=False,
            sampling=Sampling(temperature=0.0, ignore_eos=True),
        )
        keys = iter(range(10**9))

        def run(duration: float) -> list[float]:
            steps, began = [], time.perf_counter()
            while (now := time.perf_counter()) - began < duration:
                if not lane.scheduler.busy:
                    loop.add(lane, at_once(lane.admit(next(keys), request)), lambda: None)
                loop._step()
                steps.append(time.perf_counter() - now)
            return sorted(steps)

        run(1.0)
        steps = run(seconds)
    return {"rate": len(steps) / sum(steps), "p99": steps[len(steps) * 99 // 100] * 1e3}


@contextmanager
def quiet() -> Iterator[Enter]:
    """Leave the machine as it is."""
    yield lambda: None


@contextmanager
def busy() -> Iterator[Enter]:
    """Run one busy process for each core."""
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(os.cpu_count() or 1)]
    try:
        yield lambda: None
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextmanager
def half_a_core() -> Iterator[Enter]:
    """Limit the measured process to half a core.

    Raises:
        OSError: control groups of version 1 are missing, or are not writable.
    """
    (GROUP.parent / "cpu.cfs_quota_us").stat()
    GROUP.mkdir(exist_ok=True)
    try:
        (GROUP / "cpu.cfs_period_us").write_text("100000")
        (GROUP / "cpu.cfs_quota_us").write_text("50000")
        yield lambda: (GROUP / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        GROUP.rmdir()


MACHINES = {machine.__name__: machine for machine in (quiet, busy, half_a_core)}


def child(model: str, threads: int | None, spins: str | None, seconds: float, enter: Enter) -> dict[str, float]:
    """Return what a process of its own measures."""
    environment = child_environment(os.environ) if spins is None else {**os.environ, "GOMP_SPINCOUNT": spins}
    flags = ["--model", model, "--seconds", str(seconds), "--child", "--threads", str(threads or 0)]
    command = [sys.executable, "-m", "tests.benchmarks.busy_machine", *flags]
    done = subprocess.run(command, env=environment, preexec_fn=enter, check=True, stdout=subprocess.PIPE)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--machines", nargs="+", choices=MACHINES, default=list(MACHINES))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args.model, args.threads or None, args.seconds)))
        return
    settings = {
        "all cores, libgomp's spins": (usable_cores(), LIBGOMP_SPINS),
        "one thread": (1, None),
        "default": (None, None),
    }
    for name in args.machines:
        machine = MACHINES[name]
        results: dict[str, list[dict[str, float]]] = {setting: [] for setting in settings}
        with suppress(OSError), machine() as enter:
            for _ in range(args.rounds):
                for setting, (threads, spins) in settings.items():
                    results[setting].append(child(args.model, threads, spins, args.seconds, enter))
        for setting, rounds in results.items():
            if rounds:
                rate, p99 = (statistics.median(one[key] for one in rounds) for key in ("rate", "p99"))
                print(f"{name:12} {setting:28} {rate:9.1f} tokens/s  step p99 {p99:8.1f} ms", flush=True)


if __name__ == "__main__":
    main()
