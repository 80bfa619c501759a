"""Soak: random clients and disturbances for a long time, and at the end nothing lost and nothing leaked.

    python -m tests.soak [--minutes 30] [--seed N] [--clients 12] [--backend trio] [--plot FILE.png] [--keep FOLDER]

Runs the program with its engine, TLS and a Unix socket. In each round, clients send random requests to all routes,
well-formed or not; they stay, leave at some moment, read slowly or not at all. Meanwhile the engine is killed, crashes
or hangs, the certificate and an API key change, and the store has no room for a while. After each round everything must
be idle: each request has had its one outcome, no slot is in use, no token is active, and the metrics count one end for
each request. A line of the table has the memory, the open files and the tasks of that moment. At the end each request
has its row of usage.

It ends with 0, or with 1 and a line for everything that was wrong. The same seed sends the same requests.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import anyio

from tests.soak.disturbances import DISTURBANCES
from tests.soak.report import COLUMNS, leaks, plot, row, summary
from tests.soak.target import GUARD, PAUSE, Sample, Target, running
from tests.soak.visitors import Visitors

ROUND = 12.0
"""Seconds of a round."""
CALM = (1.0, 4.0)
"""Least and most seconds between two disturbances."""
SETTLING = 2.0
"""Seconds for which nothing may change before the first round."""
EXPECTED_ERRORS = (
    "engine process lost",
    'why="The engine ',
    "cannot reload",
    "the certificate stays",
    "cannot store the usage",
)
"""Words in the errors of the log that the disturbances cause."""


class Soak:
    """One soak of one server."""

    def __init__(self, target: Target, seed: int, clients: int) -> None:
        self.samples: list[Sample] = []
        self.outcomes: Counter[str] = Counter()
        self.disturbances: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._target = target
        self._seed = seed
        self._clients = clients
        self._accepted = 0

    async def run(self, seconds: float) -> None:
        """Run rounds until the time is over, and stop the server."""
        until = time.monotonic() + seconds
        await self._target.ready()
        sys.stdout.write(f"{COLUMNS}\n")
        await self._note()
        number = 0
        while time.monotonic() < until and not self.wrong:
            await self._round(f"{self._seed}-{number}", min(ROUND, seconds))
            await self._note()
            number += 1
        self.wrong += leaks(self.samples)
        code = await anyio.to_thread.run_sync(self._target.stop)
        if code:
            self.wrong.append(f"the gateway ended with {code}")
        if (rows := self._target.usage_rows()) != self._accepted:
            self.wrong.append(f"usage: {rows} of {self._accepted} requests")
        self.wrong += unexpected(self._target.lines())

    async def _round(self, name: str, seconds: float) -> None:
        visitors = Visitors(self._target, name)
        with anyio.fail_after(seconds + 2 * GUARD):
            async with anyio.create_task_group() as tasks:
                for number in range(self._clients):
                    tasks.start_soon(visitors.visit, number)
                with anyio.move_on_after(seconds):
                    await self._disturb(random.Random(name))
                visitors.stop()
        self.outcomes += visitors.outcomes
        self.wrong += visitors.violations

    async def _disturb(self, rng: random.Random) -> None:
        while True:
            await anyio.sleep(rng.uniform(*CALM))
            (disturb,) = rng.choices(list(DISTURBANCES), weights=list(DISTURBANCES.values()))
            with anyio.CancelScope(shield=True):
                await disturb(self._target, rng)
            self.disturbances[disturb.__name__] += 1

    async def _note(self) -> None:
        """Take a sample once everything of the round is released: connections close a moment after their clients."""
        sample = await self._target.sample()
        with anyio.move_on_after(GUARD):
            while leaks([self.samples[0], sample]) if self.samples else not await self._is_settled(sample):
                await anyio.sleep(PAUSE)
                sample = await self._target.sample()
        self.samples.append(sample)
        requests, ended = await self._target.outcomes()
        if requests != ended.total():
            self.wrong.append(f"metrics: {requests} requests, {ended} have ended, and none runs")
        self._accepted = int(requests) - ended["refused"]
        sys.stdout.write(f"{row(sample, self.outcomes.total())}\n")
        sys.stdout.flush()

    async def _is_settled(self, sample: Sample) -> bool:
        """Return True if the server has completed its start."""
        await anyio.sleep(SETTLING)
        later = await self._target.sample()
        return (later.files, later.tasks) == (sample.files, sample.tasks)


def unexpected(lines: list[str]) -> list[str]:
    """Return the lines of the log that no disturbance explains."""
    errors = (line for line in lines if " ERROR " in line or line.startswith("Traceback"))
    return [f"log: {line}" for line in errors if not any(words in line for words in EXPECTED_ERRORS)]


def main() -> int:
    """Run the soak from the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Soak the whole program.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--backend", choices=["trio", "asyncio"], default="trio")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder for the log; default: one that is removed")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # end the server too
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(exist_ok=True, parents=True)
        sys.stdout.write(f"seed {arguments.seed}\n")
        with running(folder, arguments.backend) as target:
            soak = Soak(target, arguments.seed, arguments.clients)
            anyio.run(soak.run, arguments.minutes * 60)
    sys.stdout.write(f"{summary(soak.outcomes, soak.disturbances)}\n")
    if arguments.plot:
        plot(soak.samples, arguments.plot)
    sys.stdout.write("".join(f"WRONG {line}\n" for line in soak.wrong) or "nothing lost, nothing leaked\n")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
