"""Series of a soak: its table, its plot, and whether anything has leaked."""

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.soak.target import Sample

MIB = 2**20
GROWTH = 0.05
"""Share by which memory may grow from the middle of the soak to its end."""
NOISE = 16 * MIB
"""Growth of memory that is never a leak: what the allocator keeps in one round and not in another. Steps of 9 MiB were
seen, in the second minute and never again."""
COLUMNS = f"{'s':>6} {'MiB':>7} {'engine':>7} {'files':>6} {'tasks':>6} {'objects':>8} {'requests':>9}"


def row(sample: Sample, requests: int) -> str:
    """Return the figures of one quiet moment as a line of the table."""
    memory = f"{sample.resident / MIB:7.1f} {sample.engine_resident / MIB:7.1f}"
    counts = f"{sample.files:6} {sample.tasks.total():6} {sample.objects:8} {requests:9}"
    return f"{sample.seconds:6.0f} {memory} {counts}"


def leaks(samples: Sequence[Sample]) -> list[str]:
    """Return what has grown. The first sample is taken before any request, and the second after the first round.

    Files and tasks must be back where they were. Memory and objects grow while caches fill, so their end is compared
    with their middle, each as the median of a third.
    """
    found = []
    idle, last = samples[0], samples[-1]
    if last.files > idle.files:
        found.append(f"files: {idle.files} when idle, {last.files} at the end")
    if more := last.tasks - idle.tasks:
        found.append(f"tasks that were not there when idle: {dict(more)}")
    third = len(samples) // 3
    if third == 0:
        return found
    middle, end = samples[third : 2 * third], samples[-third:]
    for name, noise in (("resident", NOISE), ("objects", 2000)):
        before, after = (statistics.median(getattr(sample, name) for sample in part) for part in (middle, end))
        if after > before * (1 + GROWTH) and after > before + noise:
            found.append(f"{name}: {before:.0f} in the middle, {after:.0f} at the end")
    return found


def summary(outcomes: Counter[str], disturbances: Counter[str]) -> str:
    """Return the outcomes of all requests and the disturbances, the most frequent first."""
    lines = []
    for title, counts in (("outcomes", outcomes), ("disturbances", disturbances)):
        lines.append(f"{title}: " + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
    return "\n".join(lines)


def plot(samples: Sequence[Sample], file: Path) -> None:
    """Draw memory, files and tasks over time. Needs the extra `[bench]`."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import, and absent without the extra

    figure = Figure(figsize=(9, 5), layout="constrained")
    memory, counts = figure.subplots(2, 1, sharex=True)
    minutes = [sample.seconds / 60 for sample in samples]
    memory.plot(minutes, [sample.resident / MIB for sample in samples], label="gateway")
    memory.plot(minutes, [sample.engine_resident / MIB for sample in samples], label="engine")
    memory.set_ylabel("resident memory, MiB")
    counts.plot(minutes, [sample.files for sample in samples], label="open files")
    counts.plot(minutes, [sample.tasks.total() for sample in samples], label="tasks")
    counts.set_xlabel("minutes")
    for axes in (memory, counts):
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(file)
